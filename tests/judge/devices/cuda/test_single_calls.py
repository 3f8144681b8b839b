"""Single calls: what the examiner's clock allows a submission to claim, whatever its runner reports."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from drkernel.judge.boundary.cuda.activity import DeviceWork
from drkernel.judge.boundary.cuda.device_memory import HEADER
from drkernel.judge.boundary.cuda.handshake import ACTIVATE, ACTIVE, DONE, GO, Handshake, words_of
from drkernel.judge.boundary.framing import DeadlineExceeded, ProtocolViolation
from drkernel.judge.boundary.op_trace import OpTrace, Row
from drkernel.judge.boundary.shared_tensors import HostArea, Slot
from drkernel.judge.devices.cuda import same_work, single_calls
from drkernel.judge.devices.cuda.buffers import Block, Usual
from drkernel.judge.devices.cuda.single_calls import (
    CONTESTED,
    DRIFT_US,
    KINDS,
    RESIDENT,
    SWITCHING,
    WAITING,
    SingleCall,
    SingleCalls,
    floor_us,
)
from drkernel.judge.devices.cuda.timing import FAR_BELOW

OVERHEADS = {SWITCHING: 150.0, RESIDENT: 8.0, WAITING: 60.0}
START_US = 5.0
USUAL = {kind: Usual(us, START_US * (kind != WAITING)) for kind, us in OVERHEADS.items()}


def single(kind, takes, claims=None, copy=3.0):
    """A call that takes so many microseconds in a block, and of which the runner claims others."""
    takes += USUAL[kind].start_us
    claims = takes if claims is None else claims
    return SingleCall(kind, OVERHEADS[kind] + takes + 3.0, Block([claims], [copy], [1.0], []), [])


def work(*spans):
    return [DeviceWork("kernel", (1,), (128,), 0, 32, 1000 * start, 1000 * end) for start, end in spans]


@pytest.mark.parametrize("kind", [SWITCHING, RESIDENT])
@pytest.mark.parametrize("takes", [5.0, 60.0, 4000.0])
def test_an_honest_call_is_not_lifted(kind, takes):
    assert floor_us([single(kind, takes + noise) for noise in (-0.5, 0.0, 0.8)], USUAL, 3.0, {"kernel"}) <= takes


@pytest.mark.parametrize("takes", [60.0, 4000.0])
@pytest.mark.parametrize("claims", [0.1, 0.3, 0.9])
def test_a_claim_below_what_was_seen_earns_three_per_cent_at_most(takes, claims):
    calls = [single(kind, takes, claims * takes) for kind in (SWITCHING, RESIDENT) for _ in range(3)]
    by_clock = floor_us(calls, USUAL, 3.0, {"kernel"})
    assert by_clock >= 0.97 * (takes - DRIFT_US - 1.0), "beside the microseconds by which machines differ"
    told = [dataclasses.replace(call, work=work((0, takes))) for call in calls]
    assert floor_us(told, USUAL, 3.0, {"kernel"}) >= 0.97 * takes


def test_a_machine_on_which_handshakes_take_longer_lifts_no_honest_call():
    slow = [dataclasses.replace(single(RESIDENT, 60.0), clock_us=OVERHEADS[RESIDENT] + 6.0 + 63.0)] * 2
    assert floor_us(slow, USUAL, 3.0, {"kernel"}) <= 60.0


def test_one_disturbed_call_of_two_lifts_the_floor_and_of_six_it_does_not():
    """Two that disagree have more asked (timer.py)."""
    late = dataclasses.replace(single(SWITCHING, 60.0), clock_us=OVERHEADS[SWITCHING] + 68.0 + 140.0)
    calls = [single(SWITCHING, 60.0), late]
    assert floor_us(calls, USUAL, 3.0, {"kernel"}) > 60.0 / FAR_BELOW
    more = [*calls, *[single(SWITCHING, 60.0)] * (CONTESTED - 2)]
    assert floor_us(more, USUAL, 3.0, {"kernel"}) <= 60.0


def test_a_false_claim_stays_false_where_more_calls_are_asked():
    calls = [single(RESIDENT, 60.0 + noise, claims=6.0) for noise in range(CONTESTED)]
    assert 6.0 < FAR_BELOW * floor_us(calls[:2], USUAL, 3.0, {"kernel"}) <= floor_us(calls, USUAL, 3.0, {"kernel"})


def test_work_that_is_claimed_to_be_copying_counts_as_work():
    calls = [single(RESIDENT, 60.0 + 40.0, claims=60.0, copy=43.0) for _ in range(3)]
    assert floor_us(calls, USUAL, 3.0, {"kernel"}) > 90.0


def test_a_copy_that_the_device_shows_is_a_copy_up_to_a_quarter_more_than_usual():
    copied = lambda us: [dataclasses.replace(work((0, us))[0], kernel="")]
    slow = [dataclasses.replace(single(RESIDENT, 60.0 + 12.0, 60.0, copy=60.0), clock_us=8 + 65 + 60)] * 3
    shown = [dataclasses.replace(call, work=copied(60.0)) for call in slow]
    assert floor_us(shown, USUAL, 50.0, {"kernel"}) <= 60.0 < floor_us(slow, USUAL, 50.0, {"kernel"})
    forged = [dataclasses.replace(call, work=copied(600.0)) for call in slow]
    assert floor_us(forged, USUAL, 30.0, {"kernel"}) > 70.0, "beyond that it counts as work, whatever was copied"


@pytest.mark.parametrize(
    "spans",
    [[(0, 2), (10, 130)], [(0, 60), (60, 62), (63, 123)], [(0, 2), (4, 80), (10, 124)]],
    ids=["after DONE", "before GO", "on two streams"],
)
def test_work_counts_whenever_the_device_does_it(spans):
    call = dataclasses.replace(single(RESIDENT, 5.0), work=work(*spans))
    assert call.busy_us({"kernel"}) == pytest.approx(122.0, abs=1.0) and call.busy_us({"other"}) == 0.0
    assert floor_us([call] * 3, USUAL, 3.0, {"kernel"}) > 100.0


def test_the_kind_that_shows_most_decides():
    early = [single(RESIDENT, 4.0)] * 3  # began when the inputs appeared, before GO
    assert floor_us([*early, *[single(SWITCHING, 60.0)] * 3], USUAL, 3.0, {"kernel"}) > 45.0


def test_each_kind_is_asked_so_often_and_waiting_only_where_forward_waits():
    calls = SingleCalls(None, None, False, None, None, None, None)
    assert sorted(calls.missing(waiting=False)) == [RESIDENT] * 2 + [SWITCHING] * 2
    assert calls.missing(waiting=True) == [WAITING] * 2
    calls.calls += [single(RESIDENT, 5.0)] * 2
    assert calls.missing(waiting=False) == [SWITCHING] * 2


def test_contested_calls_are_asked_more_often_beside_the_first_ones_and_then_anew():
    calls, asked = SingleCalls(None, None, False, None, None, None, None), []
    for _ in range(4):
        asked.append((len(calls.missing(waiting=True)), len(calls.latest)))
        calls.calls += [single(WAITING, 5.0)] * asked[-1][0]
        calls.contest()
    assert asked == [(2, 0), (2, 2), (2, 4), (6, 0)]


class Memory(HostArea):
    """An examiner's memory without a GPU."""

    @classmethod
    def make(cls):
        area = cls.create("memory", 2**16)
        area.clear()
        return area

    def clear(self):
        self.top = HEADER


class Doubling:
    """Buffers and runner in one: a forward that doubles its input when GO comes, from what lies in memory then."""

    local, large = SimpleNamespace(), False

    def __init__(self, early=False, dies=False):
        self.own_in, self.own_out, self.shared_in, self.shared_out = (Memory.make() for _ in range(4))
        words = HostArea.create("words", 2**16)
        self.handshake, self.words, self.early, self.dies = Handshake(words), words_of(words), early, dies
        self.activity = SimpleNamespace(new=lambda: [], skip=lambda: None)
        self.asked, self.told, self.extended = [], 1, 0.0

    def doubled(self, source, target, slot):
        lies = target.put(2 * source.view(Slot.parse(slot, source.size)))
        return {"outputs": {"tensor": 0}, "tensors": [{"slot": lies.to_json(), "expanded": False}]}

    def local_block(self, tree, slots, train, seed, ahead):
        self.own_out.clear()
        self.doubled(self.own_in, self.own_out, slots[0])

    def flush(self):
        pass

    def extend_deadline(self, seconds):
        self.extended += seconds

    def post(self, do, **question):
        self.asked.append((do, question))
        if do == "enqueue_alone" and not self.dies:
            self.thread = threading.Thread(target=self.run, args=(question,), daemon=True)
            self.thread.start()

    def run(self, question):
        self.shared_out.clear()
        value, wait = (
            question["value"],
            lambda word: [time.sleep(1e-4) for _ in iter(lambda: self.words[word // 4] >= value, True)],
        )
        if not self.early:
            wait(ACTIVATE)
            self.words[ACTIVE // 4] = value
            wait(GO)
        self.call = self.doubled(self.shared_in, self.shared_out, question["slots"][0])
        self.words[DONE // 4] = value

    def answered(self, seconds):
        if self.early:
            self.thread.join()
        return True

    def deadline(self):
        return time.monotonic() + 0.5

    def collect(self):
        if self.asked[-1][0] != "report":
            return {"traces": [OpTrace([Row("double", "double:1", True, 1, 1)]).to_json()] * self.told}
        self.thread.join()
        spans = [(10.0).hex()]
        return {"forward_us": spans, "copy_us": spans, "flush_us": spans, "calls": [self.call]}


def asking(monkeypatch, model=0, **how):
    monkeypatch.setattr(single_calls.torch.cuda, "synchronize", lambda: None)
    both, compared = Doubling(**how), []
    count = itertools.count(1)
    inputs = lambda: [torch.full((5,), float(next(count)))]
    compare = lambda reference, submission, expected, got: compared.append(torch.equal(expected, got))
    return both, SingleCalls(both, both, False, inputs, lambda: 7, compare, lambda: None, model), compared


def test_what_the_reference_takes_is_not_the_submissions_time(monkeypatch):
    """Of slow calls that are contested there are many, and none of these is answered in advance."""
    both, calls, _ = asking(monkeypatch)
    answer = both.local_block
    both.local_block = lambda *args, **how: time.sleep(0.02) or answer(*args, **how)
    for _ in range(3):
        calls.ask(RESIDENT)
    assert 0.06 <= both.extended < 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_sees_its_own_inputs_once_it_may_begin(monkeypatch, kind):
    both, calls, compared = asking(monkeypatch)
    calls.precompute(2)
    for _ in range(3):
        calls.ask(kind)
    assert compared == [True] * 3
    assert [call.kind for call in calls.calls] == [kind] * 3
    assert [row.site for trace in calls.traces for row in trace.rows] == ["double:1"] * 3
    assert {question["seed"] for do, question in both.asked if do == "enqueue_alone"} == {7}


def test_the_model_of_the_shape_that_is_timed_answers(monkeypatch):
    both, calls, _ = asking(monkeypatch, model=5)
    calls.ask(RESIDENT)
    assert [question["model"] for do, question in both.asked if do == "enqueue_alone"] == [5]


def test_work_that_begins_before_the_inputs_are_there_is_wrong(monkeypatch):
    _, calls, compared = asking(monkeypatch, early=True)
    calls.ask(SWITCHING)
    calls.ask(SWITCHING)
    assert compared == [False, False]


def test_a_call_that_never_ends_is_given_up(monkeypatch):
    _, calls, _ = asking(monkeypatch, dies=True)
    with pytest.raises(DeadlineExceeded):
        calls.ask(SWITCHING)


def test_launches_of_another_number_of_calls_are_a_violation(monkeypatch):
    both, calls, _ = asking(monkeypatch)
    both.told = 2
    with pytest.raises(ProtocolViolation, match="2 of 1 calls"):
        calls.ask(RESIDENT)


def test_an_examined_call_is_sometimes_released_late():
    words = HostArea.create("words", 2**16)
    handshake, seconds = Handshake(words), []
    for _ in range(60):
        handshake.next_value()
        begun = time.perf_counter()
        handshake.release()
        seconds.append(time.perf_counter() - begun)
        assert words_of(words)[GO // 4] == words_of(words)[ACTIVATE // 4] > 0
    assert 3 < sum(s > 5e-5 for s in seconds) < 57


def test_kernels_by_which_a_runner_copies_and_fills_are_not_its_submission_s():
    names = ("own_copy_kernel", "direct_copy_kernel_cuda", "FillFunctor", "gemm", "")
    found = [dataclasses.replace(one, kernel=name) for name, one in zip(names, work(*[(0, 1)] * 5), strict=True)]
    assert same_work.names(found, {"own_copy_kernel"}) == {"own_copy_kernel", "gemm"}


def test_evidence_has_what_single_calls_usually_take():
    assert Usual(11.4567, 3.2111).facts() == {"overhead_us": 11.46, "start_us": 3.21}
