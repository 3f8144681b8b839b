"""The parts of the GPU judge's clock that need no GPU: intervals, and what is believed of a runner's claims."""

from __future__ import annotations

import numpy
import pytest

from drkernel.judge.cuda import clock, desk
from drkernel.judge.cuda.clock import Timing
from drkernel.judge.cuda.desk import Forged
from drkernel.judge.protocol import ProtocolViolation


def hexed(values):
    return [float(value).hex() for value in values]


def claims(**changes):
    call = {"outputs": {"tensor": 0}, "tensors": [{"slot": [512, "float32", [4], [1]], "expanded": False}]}
    told = {"forward_us": hexed([10, 11]), "copy_us": hexed([3, 3]), "flush_us": hexed([40, 41])}
    return told | {"whole_us": (108.0).hex(), "calls": [call, call]} | changes


def timing(**changes):
    values = {"speedup": 2.0, "low": 1.9, "high": 2.1, "reference_us": 20.0, "submission_us": 10.0, "calls": 16}
    values |= {"armed": True, "excess_us": 0.0, "claimed_us": 800.0, "busy_us": 50.0}
    return Timing(**(values | changes))


def test_the_interval_holds_the_ratio_of_medians_and_narrows_with_more_calls():
    draw = numpy.random.default_rng(0)
    widths = []
    for calls in (10, 200):
        low, high = clock.interval(draw.normal(20, 0.4, calls), draw.normal(10, 0.2, calls), seed=1)
        assert low < 2.0 * 1.02 and high > 2.0 / 1.02
        widths.append(high - low)
    assert widths[1] < widths[0] / 2
    assert clock.interval(numpy.ones(5), numpy.ones(5), 0) == (1.0, 1.0)


def test_honest_claims_are_taken_as_they_are():
    block = desk.block_of(claims(), wall=400.0)
    assert (block.forward, block.copy, block.flush, block.whole, block.wall) == ([10, 11], [3, 3], [40, 41], 108, 400)


@pytest.mark.parametrize(
    "change",
    [
        {"forward_us": hexed([10])},
        {"forward_us": ["nan", "inf"]},
        {"forward_us": hexed([-1, 10])},
        {"forward_us": [10.0, 11.0]},
        {"whole_us": None},
        {"calls": [{}, {}]},
        {"calls": 2},
        {"flush_us": "0x1p3"},
    ],
)
def test_claims_of_another_form_are_a_violation(change):
    with pytest.raises(ProtocolViolation):
        desk.block_of(claims(**change), wall=400.0)


def test_calls_that_take_longer_than_all_of_them_together_are_forged():
    with pytest.raises(Forged):
        desk.block_of(claims(whole_us=(15.0).hex()), wall=400.0)


def test_the_trusted_clock_bounds_the_claims():
    assert not timing(excess_us=100.0).forged(slack_us=100.0)
    assert timing(excess_us=130.0).forged(slack_us=100.0)
    assert not timing(excess_us=130.0, claimed_us=8000.0).forged(slack_us=100.0)
    assert not timing(busy_us=100.0).disturbed and timing(busy_us=2400.0).disturbed
