"""What counts at a shape, and how several speed-ups become one."""

from __future__ import annotations

import math

import pytest

from drkernel.judge.devices.base import Measurement
from drkernel.judge.trusted.shape_times import ACROSS, ShapeTime, combined


def measured(speedup: float, **evidence: object) -> Measurement:
    return Measurement(speedup, 100.0, 100.0 / speedup if speedup else 0.0, (), (), evidence=evidence)


def at(speedup: float, own_work: bool = True) -> ShapeTime:
    return ShapeTime({"rows": 7}, [[7, 64]], measured(speedup), own_work)


REFUSED = ShapeTime({"rows": 9}, [[9, 64]], None, refused="ValueError: only 8 x 64")


def speedup(across: str, *times: ShapeTime) -> float:
    return combined(across, len(times), times)[0]


def test_means_are_geometric_or_the_worst():
    times = at(4.0), at(1.0), at(2.0)
    assert speedup("geometric", *times) == pytest.approx(2.0) and speedup("worst", *times) == 1.0
    assert speedup("geometric", at(1.7)) == pytest.approx(1.7)
    assert speedup("geometric", at(4.0), at(0.0)) == 0.0


@pytest.mark.parametrize("across", ACROSS)
@pytest.mark.parametrize("elsewhere", [1.0, 1.05, 2.0, 4.0])
def test_to_refuse_a_shape_never_pays(across, elsewhere):
    """... more than to run there at the speed of the reference, which PyTorch has for everybody."""
    assert speedup(across, at(4.0), REFUSED, REFUSED) <= speedup(across, at(4.0), at(elsewhere), at(elsewhere))


def test_who_refuses_a_shape_is_not_faster_in_the_worst_case():
    assert speedup("worst", at(4.0), REFUSED) == 1.0
    assert speedup("worst", at(0.5), REFUSED) == 0.5, "and does not gain by it where it is slow"
    assert speedup("geometric", at(0.5), REFUSED) == pytest.approx(0.5)


@pytest.mark.parametrize("across", ACROSS)
def test_what_pytorch_does_alone_is_not_paid(across):
    assert speedup(across, at(4.0), at(9.0, own_work=False)) == speedup(across, at(4.0), at(1.0))
    assert speedup(across, at(4.0), at(0.25, own_work=False)) == speedup(across, at(4.0), at(0.25))
    assert speedup(across, at(0.5), at(9.0, own_work=False)) == pytest.approx(0.5)


def test_the_evidence_has_each_shape_with_both_times():
    given = ShapeTime({}, [[8, 64]], measured(4.0, timing={"calls": 9}))
    other = ShapeTime({"rows": 7}, [[7, 64]], measured(2.0, timing={"calls": 8}))
    _, evidence = combined("worst", 4, [given, other, REFUSED])
    assert evidence["across"] == "worst"
    first, second, third = evidence["shapes"]
    times = {"speedup": 4.0, "reference_us": 100.0, "submission_us": 25.0}
    assert first == {"sizes": {}, "inputs": [[8, 64]], "published": True} | times
    assert second["timing"] == {"calls": 8} and second["sizes"] == {"rows": 7}
    assert (second["speedup"], second["reference_us"], second["submission_us"]) == (2.0, 100.0, 50.0)
    assert (third["speedup"], third["submission_us"], third["refused"]) == (1.0, None, "ValueError: only 8 x 64")
    assert evidence["missing"] == "2 of 3 other shapes: the task has no more of comparable work"
    assert "missing" not in combined("worst", 3, [given, other, REFUSED])[1]


def test_the_evidence_says_which_shapes_were_dropped_and_why():
    dropped = [{"sizes": {"rows": 9}, "why": "memory"}]
    _, evidence = combined("worst", 3, [at(2.0), at(2.0)], dropped)
    assert evidence["missing"] == "1 of 2 other shapes: memory gives out at others"
    assert evidence["dropped"] == dropped


def test_what_was_measured_is_said_where_it_does_not_count():
    _, evidence = combined("geometric", 2, [at(4.0), at(9.0, own_work=False)])
    facts = evidence["shapes"][1]
    assert (facts["speedup"], facts["measured"], facts["own_work"]) == (1.0, 9.0, False)


def test_a_geometric_mean_is_one():
    speedups = [0.3, 1.7, 4.4]
    assert ACROSS["geometric"](speedups) == pytest.approx(math.prod(speedups) ** (1 / 3))
