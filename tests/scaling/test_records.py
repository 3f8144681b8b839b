"""results.jsonl holds every turn whatever happened to its writer, and says where it is broken."""

import dataclasses
import json

import pytest

from drkernel.scaling import records
from drkernel.scaling.records import Record
from drkernel.types import DrKernelError, KernelTime, Verdict

PROFILE = (KernelTime("k", 1, 2.0, True),)
VERDICT = Verdict("ok", "faster", speedup=1.5, coverage=0.5, profile=PROFILE, evidence={"a": 1})
RECORD = Record(
    task="kernelbench/level1/1",
    family="level1",
    level=1,
    split="test",
    strategy="managed",
    trial=0,
    chain=0,
    turn=2,
    call=2,
    shown=(0, 1),
    prompt_tokens=100,
    tokens=20,
    finished=True,
    source="class ModelNew: 'ü\u2028'\n",
    verdict=VERDICT,
    generate_s=0.5,
    judge_s=0.25,
    started=1e9,
    model="seed",
    answer=records.pack([1, 2, 70000]),
)


def turns(number):
    return [dataclasses.replace(RECORD, call=call) for call in range(number)]


def test_what_is_appended_is_read(tmp_path):
    path = tmp_path / "results.jsonl"
    assert records.read(path) == []
    for turn in turns(3):
        records.append(path, turn)
    assert records.read(path) == turns(3)
    assert len(path.read_bytes().splitlines()) == 3
    assert isinstance(records.read(path)[0].verdict.profile[0], KernelTime)


@pytest.mark.slow
def test_a_torn_last_line_is_dropped_and_replaced(tmp_path):
    path = tmp_path / "results.jsonl"
    records.write(path, turns(2))
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        found = whole[:size].count(b"\n")
        assert records.read(path) == turns(2)[:found]
        records.append(path, RECORD)
        assert records.read(path) == [*turns(2)[:found], RECORD]


def test_a_long_torn_line_is_dropped(tmp_path):
    path = tmp_path / "results.jsonl"
    records.append(path, RECORD)
    with open(path, "ab") as file:
        file.write(b"x" * 200_000)
    records.append(path, RECORD)
    assert records.read(path) == [RECORD, RECORD]


@pytest.mark.parametrize(
    "line", ["nonsense", "[1]", "{}", '{"task": 1', json.dumps({**RECORD.to_dict(), "more": 1}), "\udcff"]
)
def test_a_broken_line_is_an_error_with_its_place(tmp_path, line):
    path = tmp_path / "results.jsonl"
    good = json.dumps(RECORD.to_dict())
    path.write_bytes(f"{good}\n{line}\n{good}\n".encode(errors="surrogateescape"))
    with pytest.raises(DrKernelError, match=r"results\.jsonl: line 2: not a record"):
        records.read(path)


def test_a_line_without_optional_keys_is_read(tmp_path):
    path = tmp_path / "results.jsonl"
    plain = RECORD.to_dict()
    del plain["answer"]
    path.write_text(json.dumps(plain) + "\n")
    assert records.read(path) == [dataclasses.replace(RECORD, answer=None)]


def test_tokens_are_packed_without_loss():
    ids = [0, 3, 151645, 2**31 - 1]
    assert records.unpack(records.pack(ids)) == ids and records.unpack(records.pack([])) == []
