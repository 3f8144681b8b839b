"""The parts of the timers that need no GPU: intervals, the order of a block, and what is believed of a report."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace

import numpy
import pytest
import torch

from drkernel.judge.boundary.cuda.device_memory import HEADER
from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.devices.cuda import buffers, timer
from drkernel.judge.devices.cuda.buffers import Block, CallReport, TensorReport
from drkernel.judge.devices.cuda.interleaving import MIN_CALLS, ratio_interval, rounds
from drkernel.judge.devices.cuda.output_slots import OutputSlots
from drkernel.judge.devices.cuda.single_calls import RESIDENT
from drkernel.judge.devices.cuda.timer import (
    BUDGET_S,
    EXTENDED_BUDGET_S,
    PairedTimer,
)
from drkernel.judge.devices.cuda.timing import Timing, combined
from drkernel.judge.trusted.cases.cases import Case
from drkernel.judge.trusted.cases.plans import mixed_plan
from drkernel.judge.trusted.comparison.mismatch import Mismatch


def hexed(values):
    return [float(value).hex() for value in values]


def report(**changes):
    call = {"outputs": {"tensor": 0}, "tensors": [{"slot": [512, "float32", [4], [1]], "expanded": False}]}
    told = {"forward_us": hexed([10, 11]), "copy_us": hexed([3, 3]), "flush_us": hexed([40, 41])}
    return told | {"calls": [call, call]} | changes


def timing(**changes):
    values = {"speedup": 2.0, "low": 1.9, "high": 2.1, "reference_us": 20.0, "submission_us": 10.0, "calls": 16}
    values |= {"gated": True, "copy_delay_us": 50.0}
    return Timing(**(values | changes))


class Scripted(PairedTimer):
    """The timer over calls whose microseconds are given, in blocks of three of each side that take 10 ms."""

    def __init__(self, monkeypatch, reference, submission):
        buffers = SimpleNamespace(large=False, local=SimpleNamespace(), own_in=SimpleNamespace(size=2**30), usual={})
        self.sides, self.elapsed, self.alone = (reference, submission), 0.0, []
        self.floor, self.contested_floors, self.wanted = 0.0, [], 3
        self.quiet = 0
        facts = False, None, 2**20, SimpleNamespace(scalar_error=0.0), False
        super().__init__(buffers, None, SimpleNamespace(model=None), *facts, self._hush)
        self.singles = SimpleNamespace(latest=[], calls=[], traces=[], contest=self.contest)
        monkeypatch.setattr(timer.time, "perf_counter", lambda: self.elapsed)
        monkeypatch.setattr(timer.time, "sleep", lambda seconds: None)
        monkeypatch.setattr(timer, "floor_us", lambda *_: self.floor)

    def contest(self):
        self.wanted += 3 if self.wanted == 3 else 6
        self.floor = self.contested_floors.pop(0) if self.contested_floors else self.floor

    def _warm_up(self, number):
        assert number == 3

    @contextlib.contextmanager
    def _hush(self):
        self.quiet += 1
        yield
        self.quiet -= 1

    def _single_call(self, secret):
        assert self.quiet
        if len(self.alone) == self.wanted:
            return 0.0
        self.alone.append(self.elapsed)
        self.elapsed += 0.01
        return 0.01

    @property
    def timed(self):
        return self.elapsed - 0.01 * len(self.alone)

    def _pair(self, number, reference_first):
        assert self.quiet
        self.elapsed += 0.02
        self._copy_delays_us.append(0.0)
        calls = [list(itertools.islice(side, number)) for side in self.sides]
        return tuple(Block(us, [3.0] * 3, [40.0] * 3, []) for us in calls)

    def timing(self, seed=0):
        return self.run(300, 1, seed, blocks=2, longer=1)


def steady(us, spread=0.002, seed=0):
    draw = numpy.random.default_rng(seed)
    return iter(lambda: us * draw.normal(1, spread), None)


def test_steady_calls_are_timed_no_longer_than_needed(monkeypatch):
    found = Scripted(monkeypatch, steady(300), steady(200, seed=1))
    assert found.timing().calls == MIN_CALLS and found.timed < BUDGET_S


def test_one_delayed_call_among_few_does_not_cost_the_lower_bound(monkeypatch):
    delayed = itertools.chain([400.0], steady(200, seed=1))
    found = Scripted(monkeypatch, steady(300), delayed)
    timing = found.timing()
    assert timing.low > 0.98 * timing.speedup and abs(timing.speedup - 1.5) < 0.02 and not timing.uneven
    assert found.timed < EXTENDED_BUDGET_S


def test_work_that_one_call_does_for_the_others_counts(monkeypatch):
    shifted = itertools.cycle([585.0, 8.0, 7.0])
    timing = Scripted(monkeypatch, steady(300), shifted).timing()
    assert abs(timing.speedup - 1.5) < 0.02 and timing.calls % 3 == 0 and timing.uneven


def test_calls_that_never_agree_are_timed_for_a_while_and_no_longer(monkeypatch):
    found = Scripted(monkeypatch, steady(300), steady(200, spread=0.4, seed=1))
    timing = found.timing()
    assert timing.low < 0.97 * timing.speedup
    assert EXTENDED_BUDGET_S < found.timed < EXTENDED_BUDGET_S + 0.05


def test_single_calls_come_at_secret_places_and_take_no_time_from_blocks(monkeypatch):
    places, ends = set(), set()
    for seed in range(32):
        found = Scripted(monkeypatch, steady(300), steady(200, seed=1))
        timing = found.timing(seed)
        assert len(found.alone) == 3, "those that are missing come at the end"
        places.add(tuple(found.alone))
        ends.add(timing.calls)
    assert ends == {6} and len(places) > 2


def test_no_call_counts_for_less_than_it_takes_alone(monkeypatch):
    found = Scripted(monkeypatch, steady(300), steady(20, seed=1))
    found.floor = 200.0
    timing = found.timing()
    assert timing.is_false, "blocks claim a tenth of what single calls take"
    assert timing.submission_us == pytest.approx(200 / 0.97), "nothing is granted to a false claim"
    assert timing.speedup == pytest.approx(300 / timing.submission_us, rel=0.01) and timing.low <= timing.speedup
    near = Scripted(monkeypatch, steady(300), steady(190, seed=1))
    near.floor = 200.0
    assert near.timing().submission_us == 200.0, "less may be an error of measurement"
    found = Scripted(monkeypatch, steady(300), steady(200, seed=1))
    found.floor = 190.0
    assert found.timing().claimed_us == 0.0 and not found.timing().is_false


def test_single_calls_that_say_far_more_than_blocks_are_asked_again(monkeypatch):
    found = Scripted(monkeypatch, steady(300), steady(60, seed=1))
    found.floor, found.contested_floors = 130.0, [58.0]
    assert found.timing().speedup == pytest.approx(5.0, rel=0.01) and len(found.alone) == 6
    agreed = Scripted(monkeypatch, steady(300), steady(60, seed=1))
    agreed.floor = 61.0
    assert agreed.timing().submission_us == 61.0 and len(agreed.alone) == 3


def test_single_calls_of_a_moment_that_something_disturbed_do_not_count(monkeypatch):
    found = Scripted(monkeypatch, steady(300), steady(200, seed=1))
    found.floor, found.contested_floors = 310.0, [305.0, 300.0, 290.0, 195.0]
    assert found.timing().submission_us == pytest.approx(200, rel=0.01) and len(found.alone) == 24
    slow = Scripted(monkeypatch, steady(300), steady(200, seed=1))
    slow.floor, slow.contested_floors = 250.0, [255.0, 300.0, 290.0, 310.0]
    assert slow.timing().floor_us == 290.0, "few calls prove nothing, neither that it is slow nor that it is fast"


def returned(form, *offsets):
    return CallReport(form, [TensorReport([offset, "float32", [4], [1]]) for offset in offsets])


@pytest.mark.parametrize(
    ("reference", "submission", "lie"),
    [
        ({"list": [{"tensor": 0}, {"tensor": 1}]}, {"tuple": [{"tensor": 0}, {"tensor": 1}]}, [0, 512]),
        (
            {"dict": [["mean", {"tensor": 0}], ["std", {"tensor": 1}]]},
            {"dict": [["std", {"tensor": 0}], ["mean", {"tensor": 1}]]},
            [512, 0],
        ),
        ({"tuple": [{"tensor": 0}, {"tensor": 1}]}, {"tensor": 0}, "another structure"),
        (
            {"tuple": [{"tensor": 0}, {"float": (1.0).hex()}]},
            {"tuple": [{"tensor": 0}, {"float": (1.1).hex()}]},
            "is 1.1",
        ),
        ({"tuple": [{"tensor": 0}, {"float": (1.0).hex()}]}, {"tuple": [{"tensor": 0}, {"float": (1.01).hex()}]}, [0]),
    ],
)
def test_outputs_of_timed_calls_are_found_by_their_names(reference, submission, lie):
    found = OutputSlots.of([returned(reference, 0, 512)], [returned(submission, 0, 512)], 4096, scalar_error=0.05)
    if isinstance(lie, str):
        assert lie in found
    else:
        assert [slot.offset for slot in found.submission] == lie and found.reference == sorted(
            found.reference, key=lambda s: s.offset
        )


class OnOtherValues(Scripted):
    """Answers single calls in this process, and is wrong by `error` where values are large."""

    def __init__(self, monkeypatch, error):
        super().__init__(monkeypatch, steady(300), steady(200, seed=1))
        self.asked, self.error = [], error
        self._buffers.own_out = SimpleNamespace(size=2**20)
        self._draw_other = lambda: Case(mixed_plan(False), [torch.full((4,), 88.0)], 5, lambda: Exactly(88.0))
        self.singles = SimpleNamespace(
            missing=lambda waiting: [RESIDENT] * (3 - sum(asked[0] == RESIDENT for asked in self.asked)),
            ask=self.note,
            ask_other=self.ask_other,
            latest=[],
            calls=[],
            traces=[],
        )

    _single_call = PairedTimer._single_call

    def note(self, *asked):
        self.asked.append(asked)
        self.elapsed += 0.01

    def ask_other(self, kind, inputs, seed):
        self.note("other", kind, seed)
        calls = [CallReport({"tensor": 0}, [TensorReport([HEADER, "float32", [4], [1]])])]
        block = Block([200.0], [3.0], [40.0], calls)
        return block, block, (inputs[0] + self.error).view(torch.uint8)


class Exactly:
    def __init__(self, value):
        self.value = value

    def check(self, outputs):
        right = torch.equal(outputs.value, torch.full((4,), self.value))
        return None if right else Mismatch("wrong_values", "output[0] is wrong")


def test_one_single_call_has_other_values_and_must_be_right(monkeypatch):
    places = set()
    for seed in range(16):
        found = OnOtherValues(monkeypatch, error=0.0)
        found._other = found._draw_other()
        found.timing(seed)
        found.finish()
        others = [place for place, asked in enumerate(found.asked) if asked[0] == "other"]
        assert len(others) == 1, "exactly one, at a secret place"
        places.add(others[0])
    assert len(places) > 1
    wrong = OnOtherValues(monkeypatch, error=1.0)
    wrong._other = wrong._draw_other()
    wrong.timing()
    with pytest.raises(timer.Mismatched, match="shifted, large"):
        wrong.finish()
    wrong.finish()  # each output is compared once


class DeviceBuffers(SimpleNamespace):
    """Notes what is asked in which order; blocks take no time."""

    def __init__(self):
        self.notes, self.values = [], iter(range(100))
        super().__init__(large=False, local=SimpleNamespace(), own_in=self, size=2**30, flush_kernel="flush")
        self.activity = SimpleNamespace(new=lambda: [], skip=lambda: None)

    def lay(self, drawn):
        self.notes.append(("laid", *drawn))
        return drawn, []

    def next_values(self, count):
        return next(self.values)

    def local_block(self, tree, slots, train, seed, ahead):
        self.notes.append("reference" if ahead else "reference at once")

    def post(self, do, **question):
        self.notes.append(do)
        self.calls = len(question.get("args", []))

    def answered(self, seconds):
        return True

    def collect(self):
        self.notes.append("answer")
        return {"traces": [OpTrace().to_json()] * self.calls}

    def claims(self):
        return None


class Noting(PairedTimer):
    def __init__(self, bytes_per_call=2**20):
        self.buffers, counted = DeviceBuffers(), []
        inputs = lambda number: self.buffers.notes.append("draws") or counted.append(number) or len(counted)
        super().__init__(
            self.buffers, self.buffers, SimpleNamespace(model=None), False, inputs, bytes_per_call, None, waits=False
        )

    def _publish_inputs(self, value, given):
        self.buffers.notes.append("publishes")

    def _compare(self, reference, submission):
        self.buffers.notes.append("compares")

    def _expected(self):
        return torch.zeros(1)


def test_inputs_are_drawn_while_the_runner_enqueues_and_appear_once_it_has(monkeypatch):
    monkeypatch.setattr(timer, "block_of", lambda claims: None)
    noting = Noting()
    noting._pair(1, True)
    noting._pair(1, False)
    gated = ["enqueue_gated", "draws", "answer", "wait", "publishes", "answer"]
    first = ["draws", ("laid", 1), "reference", *gated, "compares"]
    assert noting.buffers.notes == [*first, ("laid", 2), *gated, "reference", "compares"]
    noting._pair(2, True)
    assert ("laid", 3, 4) in noting.buffers.notes, "what was drawn for a shorter block is used, and one more is drawn"
    assert len(noting.traces) == 4


@pytest.mark.parametrize(
    ("size", "warming", "following", "kept"),
    [(2**20, 16, 16, 4), (2**26, 1, 15, 4), (2**28, 1, 3, 4), (2**29, 1, 1, 2)],
)
def test_one_warm_up_serves_all_blocks_that_are_no_longer(monkeypatch, size, warming, following, kept):
    monkeypatch.setattr(timer, "block_of", lambda claims: None)
    noting, precomputed = Noting(size), []
    noting.singles._answered = lambda inputs, seed: precomputed.append(inputs)
    noting.warm_up(least_us=10.0, launches=1)
    assert "reference" not in noting.buffers.notes
    assert noting.buffers.notes.count("draws") == warming + kept + following, (
        "what comes next is drawn before it is quiet"
    )
    assert len(precomputed) == kept, "the reference answers single calls in advance, as far as there is memory"
    noting._warm_up(16)
    assert noting.buffers.notes.count("publishes") == 1


def test_every_second_round_runs_backwards():
    orders = list(itertools.islice(rounds(["A", "B", "C"]), 4))
    assert orders == 2 * [(["A", "B", "C"], False), (["C", "B", "A"], True)]


def test_the_interval_holds_the_ratio_of_medians_and_narrows_with_more_calls():
    draw = numpy.random.default_rng(0)
    widths = []
    for calls in (10, 200):
        low, high = ratio_interval(draw.normal(20, 0.4, calls), draw.normal(10, 0.2, calls), seed=1)
        assert low < 2.0 * 1.02 and high > 2.0 / 1.02
        widths.append(high - low)
    assert widths[1] < widths[0] / 2
    assert ratio_interval(numpy.ones(5), numpy.ones(5), 0) == (1.0, 1.0)


def test_a_call_whose_kernels_run_while_the_cache_is_flushed_works_outside():
    assert not timing(outside_us=1.1).works_outside, "the device's records err by so much"
    assert timing(outside_us=1.3).works_outside and not timing(outside_us=1.3, submission_us=100.0).works_outside
    assert combined(timing(), timing(outside_us=7.0)).works_outside, "in one process of two is enough"


def test_two_processes_count_alike_and_what_is_against_one_is_against_both():
    one = timing(speedup=2.0, reference_us=20.0, submission_us=10.0, floor_us=5.0)
    other = timing(speedup=1.9, reference_us=20.9, submission_us=11.0, floor_us=13.0, gated=False)
    both = combined(one, other)
    assert both.speedup == pytest.approx(3.8**0.5) == pytest.approx(both.reference_us / both.submission_us)
    assert (both.calls, both.gated, both.floor_us, both.uneven) == (32, False, 13.0, False)
    assert combined(one, timing(uneven=True)).uneven


def test_honest_reports_are_taken_as_they_are():
    block = buffers.block_of(report())
    assert (block.forward, block.copy, block.flush) == ([10, 11], [3, 3], [40, 41])


@pytest.mark.parametrize(
    "change",
    [
        {"forward_us": hexed([10])},
        {"forward_us": ["nan", "inf"]},
        {"forward_us": hexed([-1, 10])},
        {"forward_us": [10.0, 11.0]},
        {"calls": [{}, {}]},
        {"calls": 2},
        {"flush_us": "0x1p3"},
    ],
)
def test_reports_of_another_form_are_a_violation(change):
    with pytest.raises(ProtocolViolation):
        buffers.block_of(report(**change))


def test_a_gpu_that_is_kept_busy_is_noticed():
    assert not timing(copy_delay_us=100.0).gpu_kept_busy and timing(copy_delay_us=2400.0).gpu_kept_busy
