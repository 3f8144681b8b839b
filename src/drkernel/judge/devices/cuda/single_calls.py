"""Single calls of a submission, timed by the examiner's clock: what the times of blocks are checked against.

In a block all inputs lie in memory together, and durations are what the runner reports. Neither is to be believed. So
between blocks, at secret places, there are single calls. Such a call sees its own inputs and no others, and the
examiner sees on its own clock when its outputs are complete. See boundary/cuda/handshake.py for two kinds, which a
submission cannot tell apart. A third kind, `waiting`, is for submissions that wait for the device within their
forward. They cannot be enqueued ahead, so their forward begins at GO, and launch latency counts.

One more single call has other values than the given inputs, as examined cases have. Only its outputs count. So a
submission that knows a timed call when it sees one may not rely on the values that such calls usually have.

No time of a submission counts that is shorter than single calls allow (`floor_us`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from drkernel.judge.boundary.cuda.activity import DeviceWork
from drkernel.judge.boundary.cuda.device_memory import HEADER
from drkernel.judge.boundary.cuda.handshake import ACTIVATE, ACTIVE, DONE, GO
from drkernel.judge.boundary.framing import DeadlineExceeded
from drkernel.judge.devices.cuda.buffers import GATED_S, Block, DeviceBuffers, Usual, block_of
from drkernel.judge.trusted.processes.runner_client import RunnerClient, traces_of

SWITCHING, RESIDENT, WAITING = KINDS = ("switching", "resident", "waiting")
SLACK_US = {SWITCHING: 8.0, RESIDENT: 0.7, WAITING: 500.0}
"""By how much the clock of a kind may be off, in either direction, beside its usual overhead."""
LEEWAY = 0.97
"""A call of a block may take this proportion of a single call, for which caches are colder."""
COPY_FACTOR, COPY_SLACK_US, MOST_COPY = 1.02, 0.5, 1.25
"""How much longer than the reference's the copy of a call's outputs may be without counting as work of the call, and up
to which factor where the device's records show that much copying: in a card that is nearly full, memory differs."""
DRIFT_US = 7.0
"""By how much the overhead of a kind may exceed the one that was measured when the examiner started: machines differ
from hour to hour. Of honest calls the overhead is what their own reports say."""
WANTED, DOUBTED, CONTESTED = 2, 4, 6
"""Single calls of each kind; how many where those say that the blocks' calls are too short; and where these say so,
too. Then their median counts: one of two may have been disturbed, three of six are not."""
PAUSES_S = (0.0, 0.0, 0.03, 0.1)
"""Before more calls, where those say that the blocks' calls are too short: first beside those that were asked, then
others, since something else may have had the GPU or the examiner's core."""
AGREED, AGREED_US = 0.02, 1.5
"""By how much blocks may claim less than single calls say before more of these are asked."""

KEPT_AREAS = 2
"""Inputs and outputs of calls that the reference answers in advance take as much memory as so many areas at most."""


@dataclass(frozen=True)
class SingleCall:
    """One of them."""

    kind: str
    clock_us: float
    """By the examiner's clock, from GO to DONE."""
    reported: Block
    work: list[DeviceWork]
    """What the device executed meanwhile, the runner's copies included."""
    whole: bool = True
    """Whether all of its forward came after GO. Else its time does not count."""

    def facts(self) -> list[Any]:
        """For the verdict's evidence: kind, clock, forward and copy in microseconds."""
        return [self.kind, *(round(us, 2) for us in (self.clock_us, self.reported.forward[0], self.reported.copy[0]))]

    def overhead_us(self) -> float:
        """What a runner that reports the truth needs beside its forward and its copy."""
        return self.clock_us - self.reported.forward[0] - self.reported.copy[0]

    def busy_us(self, kernels: Collection[str]) -> float:
        """For how long the device ran kernels with these names, whenever that was: before GO and after DONE, too."""
        busy, until = 0, 0
        for work in self.work:  # in the order in which they began
            if work.kernel in kernels:
                busy += max(0, work.end - max(work.start, until))
                until = max(until, work.end)
        return busy / 1e3

    def _moved_us(self, kernels: Collection[str]) -> float:
        """For how long the device copied once forward's kernels had ended."""
        ended = max((work.end for work in self.work if work.kernel in kernels), default=0)
        return sum(work.us for work in self.work if not work.kernel and work.start >= ended)

    def at_least_us(self, usual: Usual, usual_copy_us: float, kernels: Collection[str]) -> float:
        """What a call of a block takes at least: by the examiner's clock, by the device, and by the runner's report.

        The report of a call that waits for the device has the host's time in it, which blocks may hide.
        """
        shown_us = min(self._moved_us(kernels), MOST_COPY * usual_copy_us)
        copied = min(self.reported.copy[0], max(shown_us, COPY_FACTOR * usual_copy_us + COPY_SLACK_US))
        claimed = 0.0 if self.kind == WAITING else self.reported.forward[0]
        clock_us = self.clock_us - usual.overhead_us - copied - SLACK_US[self.kind]
        return LEEWAY * max(max(claimed - SLACK_US[RESIDENT], clock_us) - usual.start_us, self.busy_us(kernels))


def floor_us(
    calls: Sequence[SingleCall], usual: dict[str, Usual], usual_copy_us: float, kernels: Collection[str]
) -> float:
    """What a call takes at least: the most that any kind of single calls says, in microseconds.

    Args:
        usual: by kind, as it was measured on a trusted submission.
        kernels: the names of those that forward runs.
    """
    floors = [0.0]
    for kind in {call.kind for call in calls}:
        alike, usual_us = [call for call in calls if call.kind == kind], usual[kind].overhead_us
        overhead_us = min(usual_us + DRIFT_US, max(usual_us, _low([call.overhead_us() for call in alike])))
        likely = Usual(overhead_us, usual[kind].start_us)
        floors.append(_low([call.at_least_us(likely, usual_copy_us, kernels) for call in alike]))
    return max(floors)


def agree(claimed_us: float, floor_us: float) -> bool:
    """Whether what blocks claim is what single calls say."""
    return claimed_us >= floor_us - max(AGREED_US, AGREED * floor_us)


def true_us(floor_us: float) -> float:
    """What calls take of which `floor_us` says that they take at least so much, without the proportion that it
    grants."""
    return floor_us / LEEWAY


def _low(values: list[float]) -> float:
    """The lower quartile of few, the median of many: what takes longer may have been disturbed."""
    return float(numpy.quantile(values, 0.25 if len(values) < CONTESTED else 0.5))


@dataclass(frozen=True)
class _Given:
    """Inputs of a call, and the reference's answer."""

    inputs: list
    seed: int
    reference: Block | None
    outputs: torch.Tensor | None
    """Their bytes. None of a large call, which the reference answers after the submission."""


class SingleCalls:
    """Asks them.

    Args:
        inputs: fresh ones of the next call.
        seed: of the next call.
        compare: compare(reference, submission, expected, got) notes what is to be compared.
        between: called while the runner enqueues.
        model: which of the submission's models answers; see plans.
    """

    def __init__(
        self,
        buffers: DeviceBuffers,
        client: RunnerClient,
        train: bool,
        inputs: Callable[[], list],
        seed: Callable[[], int],
        compare: Callable[[Block, Block, torch.Tensor | None, torch.Tensor | None], None],
        between: Callable[[], None],
        model: int = 0,
    ):
        self._buffers, self._client, self._train = buffers, client, train
        self._inputs, self._seed, self._compare, self._between = inputs, seed, compare, between
        self._model = model
        self._precomputed: list[_Given] = []
        self._answered_other: _Given | None = None
        self._wanted, self._first = WANTED, 0
        self.calls: list[SingleCall] = []
        self.traces: list = []

    def precompute(self, bytes_per_call: int, other: tuple[list, int] | None = None) -> None:
        """Has the reference answer the next calls as far as they have room, and the one on other values.

        Args:
            bytes_per_call: inputs or outputs of one call, whichever is more.
            other: the inputs and the seed of that one.
        """
        number = min(2 * WANTED, KEPT_AREAS * self._buffers.own_in.size // max(1, 2 * bytes_per_call))
        while len(self._precomputed) < number:
            self._precomputed.append(self._answered(self._inputs(), self._seed()))
        self._answered_other = self._answered(*other) if other else None

    def missing(self, waiting: bool) -> list[str]:
        """The kinds that are still to be asked, once for each call."""
        kinds = (WAITING,) if waiting else (SWITCHING, RESIDENT)
        asked = [call.kind for call in self.latest]
        return list(itertools.chain(*([kind] * max(0, self._wanted - asked.count(kind)) for kind in kinds)))

    @property
    def latest(self) -> list[SingleCall]:
        """The calls that count: those since as many as there are of CONTESTED were contested, too."""
        return self.calls[self._first :]

    def contest(self) -> None:
        """Has more calls asked, since blocks and calls disagree: some beside the first ones, then others instead."""
        if self._wanted == CONTESTED:
            self._first = len(self.calls)
        self._wanted = DOUBTED if self._wanted == WANTED else CONTESTED

    def ask(self, kind: str) -> SingleCall:
        """Asks one call. Its outputs are compared later.

        Raises:
            DeadlineExceeded, Failed, PeerClosed, ProtocolViolation.
        """
        given = self._precomputed.pop() if self._precomputed else self._next()
        call, traces, got, lies = self._ask(kind, given)
        self.traces += traces
        if call.whole:
            self.calls.append(call)
        self._compare(self._by_reference(given, lies), call.reported, given.outputs, got)
        return call

    def ask_other(self, kind: str, inputs: list, seed: int) -> tuple[Block, Block, torch.Tensor | None]:
        """Asks one call on other values. Neither its time nor its launches count, since both may depend on values.

        Returns:
            The reference's call, the submission's, and the bytes of its outputs; of a large call these are None, and
            lie in the shared memory.

        Raises:
            DeadlineExceeded, Failed, PeerClosed, ProtocolViolation.
        """
        given, self._answered_other = self._answered_other or self._answered(inputs, seed), None
        call, _, got, lies = self._ask(kind, given)
        return self._by_reference(given, lies), call.reported, got

    def _ask(self, kind: str, given: _Given) -> tuple[SingleCall, list, torch.Tensor | None, tuple[Any, list]]:
        """One call, its launches, the bytes of its outputs (but of a large call's), and where its inputs lie."""
        area = self._buffers.shared_in if self._buffers.large else self._buffers.own_in
        tree, slots = (area.plan if self._buffers.large else area.lay)([given.inputs])
        handshake = self._client.handshake
        question = {"model": self._model, "args": tree, "slots": slots, "train": self._train, "seed": given.seed}
        value = handshake.next_value()
        self._client.activity.skip()
        self._client.post("enqueue_alone", value=value, waiting=kind == WAITING, **question)
        self._between()
        in_time = kind != WAITING and self._client.answered(GATED_S)
        traces = self._launches() if in_time else []
        start = self._show_inputs(given.inputs, handshake, at_once=in_time and kind == SWITCHING)
        traces = traces if in_time else self._launches()
        if not handshake.wait(DONE, self._client.deadline()):
            raise DeadlineExceeded
        clock_us = 1e6 * (time.perf_counter() - start)
        got = self._buffers.shared_out.bytes(HEADER, len(given.outputs)).clone() if given.outputs is not None else None
        reported, whole = block_of(self._client.collect()), in_time or kind == WAITING
        return SingleCall(kind, clock_us, reported, self._client.activity.new(), whole), traces, got, (tree, slots)

    def _by_reference(self, given: _Given, lies: tuple[Any, list]) -> Any:
        """The reference's call."""
        if not self._buffers.large:
            return given.reference
        return self._buffers.local_block(*lies, self._train, given.seed, ahead=False, given=[given.inputs])

    def _launches(self) -> list:
        """What the call launched; the runner's next reply comes when it is done."""
        answer = self._client.collect()
        self._client.post("report")
        return traces_of(answer, 1)

    def _show_inputs(self, inputs: list, handshake: Any, at_once: bool) -> float:
        """Makes the inputs appear in the runner's memory, with a cold L2 cache, and says go. Returns when that was.

        Args:
            at_once: without waiting for the runner's context.
        """
        used = self._buffers.own_in.top - HEADER
        if self._buffers.large:
            self._buffers.publish(inputs)
        elif used:
            self._buffers.shared_in.bytes(HEADER, used).copy_(self._buffers.own_in.bytes(HEADER, used))
        self._buffers.flush()
        torch.cuda.synchronize()
        if not at_once:
            handshake.write(ACTIVATE)
            if not handshake.wait(ACTIVE, self._client.deadline()):
                raise DeadlineExceeded
        start = time.perf_counter()
        handshake.write(GO, ACTIVATE)
        return start

    def _next(self) -> _Given:
        """One that was not answered in advance: what that takes now is not the submission's time."""
        begun = time.monotonic()
        given = self._answered(self._inputs(), self._seed())
        self._client.extend_deadline(time.monotonic() - begun)
        return given

    def _answered(self, inputs: list, seed: int) -> _Given:
        buffers = self._buffers
        if buffers.large:
            return _Given(inputs, seed, None, None)
        self._between()  # what is compared lies where the reference's outputs come
        reference = buffers.local_block(*buffers.own_in.lay([inputs]), self._train, seed, ahead=False)
        return _Given(inputs, seed, reference, buffers.own_out.bytes(HEADER, buffers.own_out.top - HEADER).clone())
