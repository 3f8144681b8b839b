"""The trace comes from an untrusted process: what is not exactly a trace is refused."""

import json

import pytest

from drkernel.judge.boundary.op_trace import OpTrace, Row, Traffic

ROW = Row("k", "k:3", True, 1, 4, 2.5, 10.0, 64, "tf32", 128, 8, [Traffic(64, 256, 512, True)])


def test_round_trip():
    trace = OpTrace([ROW, Row("mm", "mm", False)])
    assert OpTrace.from_json(trace.to_json(), max_rows=2) == trace


def test_too_many_rows_are_refused():
    with pytest.raises(ValueError, match="at most 1"):
        OpTrace.from_json(OpTrace([ROW, ROW]).to_json(), max_rows=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (0, 7),
        (0, ""),
        (0, "x" * 1000),
        (1, None),
        (2, 1),
        (3, -1),
        (3, 1.5),
        (3, True),
        (4, 10**30),
        (5, float("nan")),
        (5, float("inf")),
        (6, -0.5),
        (7, "64"),
        (8, "fp4"),
        (11, {}),
        (11, [[64, 1, 1]]),
        (11, [[64, 1, -1, True]]),
        (11, [[64, 1, 1, 1]]),
        (11, [[1, 1, 1, True]] * 1000),
        (13, [[1, 1, 1, True]] * 1000),
        (14, [[4, 64, 1, 1]]),
        (14, [[4, -1, True, 1]]),
        (14, [[4, 64, True, 1]] * 1000),
    ],
)
def test_wrong_types_and_impossible_numbers_are_refused(field, value):
    rows = json.loads(OpTrace([ROW]).to_json())
    rows[0][field] = value
    with pytest.raises(ValueError):
        OpTrace.from_json(json.dumps(rows))


@pytest.mark.parametrize("text", ["", "{}", "null", "[1]", "[[]]", '[["k"]]', "[" * 5000 + "]" * 5000, " " * 10**7])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError):
        OpTrace.from_json(text)
