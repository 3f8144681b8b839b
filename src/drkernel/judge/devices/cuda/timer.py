"""How fast, on a real GPU: reference and submission in turn, on fresh inputs, each on a cold L2 cache.

A block is K calls that are enqueued, each behind a wait for a word of memory. Only when the runner says that it has
enqueued them do the inputs appear and are the words written: launch latency is hidden (what is timed is the device),
and nothing can be computed before the block. Here and there a block is a staggered_block: inputs appear call by call, so that
nothing can be computed in another call either. Events inside the runner claim how long each call took; the trusted
clock from the writing of the words to the runner's answer bounds the claim. What each call launches is recorded as in
the examination, and every output is compared with the reference's. Blocks go A B B A until the interval of the ratio
is narrow. Source: reference/judging.md 3.3.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from drkernel.judge.boundary.cuda.calls import SCATTERED
from drkernel.judge.boundary.cuda.device_memory import WORD
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.boundary.shared_tensors import Slot
from drkernel.judge.devices.cuda.buffers import GATED_S, Block, DeviceBuffers, block_of
from drkernel.judge.devices.cuda.stopwatch import ratio_interval
from drkernel.judge.trusted.cases import Side
from drkernel.judge.trusted.runner_client import RunnerClient, traces_of
from drkernel.judge.trusted.tolerance import Tolerance

FEW_CALLS, MOST_CALLS, BLOCK_US, LONGEST_US = 3, 16, 800.0, 10_000.0
"""Calls per block, and how long a block of calls should take; the last ends it before there are a few calls."""
FEWEST, BUDGET_S, NARROW = 6, 0.05, 0.01
"""Calls of each side at least; then it ends when the time is used up or the interval's half-width is this small."""
LOOSE, PATIENCE_S = 0.03, 0.25
"""A lower bound so far below the speed-up, as after one disturbed call of few, gets this much time instead."""
_LAST_S = 0.3
COPIED_PER_S, BUSY_US = 1e12, 1500.0
"""Bytes per second that a copy surely reaches; microseconds over that time, less than a time slice of 2 ms."""
SLACK, _HIDDEN_US = 0.03, 20.0
"""What the trusted clock may exceed the claims by besides a given slack; what a copy or flush may take beyond twice the
usual."""
_CALM_S = 3e-4
"""Pause after the inputs' copy: the GPU takes that long to leave the examiner's context, which would blur the clock."""
_LATE, _PLAIN_SLACK_US = 2, 1500.0
UNEVEN = 1.25
"""A block's mean call may take so many times the median call; above, calls may do each other's work: means count."""
STAGGERED_SHARE, SURPRISED, FORESEEN = 0.25, 2, 2
"""Share of a submission's blocks before which there is a staggered_block, its calls, and how many are prepared ahead."""
_ENQUEUED_S, _TURN_S, _TURN = 5e-3, 5e-4, 1.5
"""Seconds that enqueueing a staggered_block may take, and from one of its calls to the next: a constant, and a multiple of
what a call takes."""


@dataclass
class Timing:
    """The outcome: ratios are reference / submission."""

    speedup: float
    low: float
    high: float
    reference_us: float
    submission_us: float
    calls: int
    gated: bool
    """Whether launch latency was hidden."""
    excess_us: float
    """How much longer the best block took by the trusted clock than the runner claims, beyond the usual."""
    claimed_us: float
    """What the runner claims for a block, median."""
    busy_us: float
    """How much longer than it must the inputs' copy took, median: a time slice and more while the runner computes."""
    uneven: bool = False
    """Whether some calls of a block took so much longer than others that blocks' means count."""

    @property
    def disturbed(self) -> bool:
        """Whether the GPU was computing for the runner when it should have been waiting."""
        return self.busy_us > BUSY_US

    def forged(self, slack_us: float) -> bool:
        """Whether the trusted clock saw more time than the claims and a slack explain."""
        return self.excess_us > (slack_us if self.gated else _PLAIN_SLACK_US) + SLACK * self.claimed_us


def joined(one: Timing, other: Timing) -> Timing:
    """Of two processes: geometric means, and what is to be said against either."""
    keys = ("speedup", "low", "high", "reference_us", "submission_us")
    means = {key: math.sqrt(getattr(one, key) * getattr(other, key)) for key in keys}
    worse = {key: max(getattr(one, key), getattr(other, key)) for key in ("excess_us", "claimed_us", "busy_us")}
    calls, uneven = one.calls + other.calls, one.uneven or other.uneven
    return Timing(**means, calls=calls, gated=one.gated and other.gated, uneven=uneven, **worse)


class Mismatched(Exception):
    """A timed call's output is not the reference's."""


class PairedTimer:
    """Times one submission against the reference.

    Args:
        inputs: inputs(n) is the n-th list of fresh inputs.
        bytes_per_call: inputs or outputs of one call, whichever is more.
        tolerance: how far outputs may be apart.
        waits: whether the reference waits for the device in its forward, so that its calls cannot be enqueued ahead.
        quiet: what happens while calls are timed; surprises need it not.
    """

    def __init__(
        self,
        buffers: DeviceBuffers,
        client: RunnerClient,
        side: Side,
        train: bool,
        inputs: Callable[[int], list],
        bytes_per_call: int,
        tolerance: Tolerance,
        waits: bool,
        quiet: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    ):
        self._buffers, self._client, self._train = buffers, client, train
        self._inputs, self._bytes, self._tolerance, self._waits = inputs, bytes_per_call, tolerance, waits
        self._quiet = quiet
        self._uncompared: tuple[torch.Tensor, torch.Tensor, list[Slot], int] | None = None
        self._foreseen: list[tuple[list, Block, torch.Tensor]] = []
        self._count = itertools.count()
        buffers.local.models = {0: side.model}
        self._late, self._ahead, self._warm = 0, True, 0
        self.traces: list[OpTrace] = []
        """What each call of the last run launched."""
        self._busy: list[float] = []
        self._drawn: list[list] = []
        """Inputs of the next calls, where there was time to draw them."""

    def run(self, expected_us: float, launches: int, seed: int, blocks: int, longer: int, slack_us: float) -> Timing:
        """Times until the interval is narrow and the trusted clock agrees, or the time is up; `settle` must follow.

        Args:
            expected_us: about how long the slower side takes.
            launches: kernels that one call launches at most.
            blocks: of each side at least.
            longer: how many times as long as usual blocks may take.
            slack_us: see Timing.forged.

        Raises:
            Mismatched, buffers.Forged, Failed, protocol.PeerClosed, protocol.DeadlineExceeded, protocol.ProtocolViolation.
        """
        number = self._calls(expected_us, launches, longer)
        secret = numpy.random.default_rng(seed)
        self._warm_up(number)
        self._late, self._busy, self.traces = 0, [], []
        theirs: list[Block] = []
        ours: list[Block] = []
        start = time.perf_counter()
        for reference_first in itertools.cycle((True, False)):
            if secret.random() < STAGGERED_SHARE:
                start += self._surprise(number, expected_us)
            with self._quiet():
                one, other = self._pair(number, reference_first)
            theirs.append(one)
            ours.append(other)
            elapsed, calls = time.perf_counter() - start, number * len(ours)
            if reference_first or len(ours) < blocks or (calls < FEWEST and elapsed < _LAST_S):
                continue
            timing = self._timing(theirs, ours, seed)
            budget = PATIENCE_S if timing.low < (1 - LOOSE) * timing.speedup else BUDGET_S
            narrow = timing.high - timing.low < 2 * NARROW * timing.speedup
            if elapsed > budget or (narrow and not timing.forged(slack_us)):
                self._surprise(number, expected_us)  # who waits for the surprises to be over gains nothing
                return timing
        raise AssertionError

    def _calls(self, expected_us: float, launches: int, longer: int = 1) -> int:
        """Calls per block: as `run`."""
        room = self._buffers.own_in.size // (self._bytes + 4096)
        few = min(FEW_CALLS, LONGEST_US / max(expected_us, 1.0))
        wanted = max(few, min(MOST_CALLS, BLOCK_US / max(expected_us, 1.0)))
        return max(1, min(round(longer * wanted), room, 400 // max(launches, 1)))

    def _surprise(self, number: int, expected_us: float) -> float:
        """A short block whose inputs appear call by call, which a submission cannot tell from others.

        In others all appear at once: a call could do the work of those behind it, or work on another stream could run
        ahead while the cache is emptied before its call, which is not its time. Here such work reads zeros. Where
        blocks have one call there is nothing to staggered_block. Returns the seconds that it took.
        """
        begun, number, buffers = time.perf_counter(), min(SURPRISED, number), self._buffers
        if number == 1:
            return 0.0
        inputs, theirs, right = self._foreseen.pop() if self._foreseen else self._foresee(number)
        tree, slots = buffers.own_in.lay(inputs)
        word = buffers.next_word(number)
        starts = [slots[call * len(slots) // number][0] if slots else WORD for call in range(1, number)]
        buffers.shared_in.bytes(WORD, buffers.own_in.top - WORD).zero_()
        self._arm(tree, slots, word)
        self.settle()  # while the runner enqueues
        self._client.answered(_ENQUEUED_S)
        for turn, (start, end) in enumerate(itertools.pairwise([WORD, *starts, buffers.own_in.top])):
            if turn:
                time.sleep(_TURN_S + 1e-6 * _TURN * expected_us)
            self._show(start, end)
            buffers.shared_in.release(word + turn)
        self._armed_calls(number)
        self._client.collect()
        self._compare(theirs, block_of(self._client.claims(), 0.0), right)
        return time.perf_counter() - begun

    def _foresee(self, number: int) -> tuple[list, Block, torch.Tensor]:
        """The inputs of a staggered_block, and the reference's block and the bytes of its outputs."""
        self.settle()
        inputs, buffers = [self._inputs(next(self._count)) for _ in range(number)], self._buffers
        block = buffers.local_block(*buffers.own_in.lay(inputs), self._train, ahead=False)
        return inputs, block, self._outputs().clone()

    def _outputs(self) -> torch.Tensor:
        """The bytes of the reference's last outputs."""
        return self._buffers.own_out.bytes(WORD, self._buffers.own_out.top - WORD)

    def warm_up(self, least_us: float, launches: int) -> None:
        """What needs no quiet: blocks as long as `run` makes them at most, where a call takes at least `least_us`."""
        number = self._calls(least_us, launches)
        self._warm_up(number)
        if number > 1:
            self._foreseen = [self._foresee(min(SURPRISED, number)) for _ in range(FORESEEN)]
        self._draw_ahead(number)

    def _warm_up(self, number: int) -> None:
        """A pair of blocks that start at once: then, before one waits, every kernel is loaded and there is memory."""
        number = number if self._bytes <= SCATTERED else 1
        if number > self._warm:
            self._ahead, self._warm = False, number
            self._pair(number, True)
            self._ahead = True

    def excesses(self, number: int, blocks: int) -> list[float]:
        """By how many microseconds the trusted clock exceeds the events, block by block, for a runner to be trusted."""
        self._warm_up(number)
        pairs = [self._pair(number, True) for _ in range(blocks)]
        return [ours.wall - ours.whole for _, ours in pairs]

    def _pair(self, number: int, reference_first: bool) -> tuple[Block, Block]:
        """The reference's block and the submission's, on the same fresh inputs; their outputs are compared."""
        tree, slots = self._draw(number)
        if reference_first:
            theirs = self._reference(tree, slots)
            ours = self._submission(tree, slots, number)
        else:
            ours = self._submission(tree, slots, number)
            theirs = self._reference(tree, slots)
        self._compare(theirs, ours)
        return theirs, ours

    def _draw(self, number: int) -> tuple[Any, list]:
        """Fresh inputs for each call of a block, in the examiner's own memory."""
        self._draw_ahead(number)
        drawn, self._drawn = self._drawn[:number], self._drawn[number:]
        return self._buffers.own_in.lay(drawn)

    def _draw_ahead(self, number: int) -> None:
        while len(self._drawn) < number:
            self._drawn.append(self._inputs(next(self._count)))

    def _reference(self, tree: Any, slots: list) -> Block:
        self.settle()  # its outputs take the place of the last block's
        return self._buffers.local_block(tree, slots, self._train, ahead=self._ahead and not self._waits)

    def _submission(self, tree: Any, slots: list, number: int) -> Block:
        word = self._buffers.next_word(number)
        if self._ahead and self.gated:
            self._arm(tree, slots, word)
            self.settle()  # while the runner enqueues its calls
            self._draw_ahead(number)
            in_time = self._client.answered(GATED_S)
            self._late += not in_time
            if in_time:
                self._armed_calls(number)
            start = self._reveal(word + number - 1)
            if not in_time:
                self._armed_calls(number)
        else:
            start = self._reveal(word + number - 1)
            self._arm(tree, slots, word)
            self._armed_calls(number)
        self._client.collect()
        wall = 1e6 * (time.perf_counter() - start)
        return block_of(self._client.claims(), wall)

    def _arm(self, tree: Any, slots: list, word: int) -> None:
        """Has the runner enqueue calls, the first behind a wait for `word`, each further one for one more."""
        question = {"model": 0, "args": tree, "slots": slots, "train": self._train, "seed": 0, "word": word}
        self._client.post("enqueue_gated", **question)

    def _armed_calls(self, number: int) -> None:
        """Takes note of what so many calls have launched; the next answer comes when they are done."""
        answer = self._client.collect()
        self._client.post("wait")
        self.traces += traces_of(answer, number)

    @property
    def gated(self) -> bool:
        return self._late < _LATE

    def _reveal(self, word: int) -> float:
        """The inputs of the block appear in the runner's memory, then the word. Returns when that was."""
        buffers = self._buffers
        used = buffers.own_in.top - WORD
        torch.cuda.synchronize()
        start = time.perf_counter()
        self._show(WORD, buffers.own_in.top)
        self._busy.append(1e6 * (time.perf_counter() - start - used / COPIED_PER_S))
        calm = time.perf_counter() + _CALM_S
        while (start := time.perf_counter()) < calm:
            pass
        buffers.shared_in.release(word)
        return start

    def _show(self, start: int, end: int) -> None:
        """The inputs between these bytes appear in the runner's memory."""
        if end > start:
            self._buffers.shared_in.bytes(start, end - start).copy_(self._buffers.own_in.bytes(start, end - start))
        torch.cuda.synchronize()

    def _compare(self, theirs: Block, ours: Block, right: torch.Tensor | None = None) -> None:
        """Compares the forms of two blocks' outputs, and takes the values for `settle`.

        Args:
            right: the bytes of the reference's outputs, where others have taken their place.
        """
        slots = [[fact["slot"] for fact in call["tensors"]] for call in ours.calls]
        if slots != [[fact["slot"] for fact in call["tensors"]] for call in theirs.calls]:
            raise Mismatched("a timed call returned tensors of other shapes than before")
        if [call["outputs"] for call in ours.calls] != [call["outputs"] for call in theirs.calls]:
            raise Mismatched("a timed call returned another structure than before")
        flat = [Slot.parse(slot, self._buffers.own_out.size) for call in slots for slot in call]
        right = self._outputs() if right is None else right
        self._uncompared = right, self._buffers.shared_out.bytes(WORD, len(right)).clone(), flat, len(ours.calls)

    def settle(self) -> None:
        """Compares the values of the last block, which is put off until the device is idle anyway.

        Raises:
            Mismatched.
        """
        uncompared, self._uncompared = self._uncompared, None
        if uncompared:
            *facts, number = uncompared
            if problem := self._tolerance.check(*facts, WORD, number):
                raise Mismatched(problem)

    def _timing(self, theirs: list[Block], ours: list[Block], seed: int) -> Timing:
        reference, submission = (
            numpy.array([us for block in blocks for us in block.forward]) for blocks in (theirs, ours)
        )
        for key in ("copy", "flush"):  # what these take longer than they can is work of the call
            usual = float(numpy.median([us for block in theirs for us in getattr(block, key)]))
            claimed = numpy.array([us for block in ours for us in getattr(block, key)])
            submission = submission + numpy.maximum(0.0, claimed - 2 * usual - _HIDDEN_US)
        means = numpy.array([part.mean() for part in numpy.split(submission, len(ours))])
        if uneven := bool(numpy.median(means) > UNEVEN * numpy.median(submission)):
            submission = means
        low, high = ratio_interval(reference, submission, seed)
        one, other = float(numpy.median(reference)), float(numpy.median(submission))
        excess = [block.wall - block.whole - self._buffers.overhead_us for block in ours]
        claimed = float(numpy.median([block.whole for block in ours]))
        return Timing(
            one / other,
            low,
            high,
            one,
            other,
            sum(len(block.forward) for block in ours),
            self.gated,
            min(excess),
            claimed,
            float(numpy.median(self._busy)),
            uneven,
        )


def waits(buffers: DeviceBuffers, side: Side, train: bool, inputs: list) -> bool:
    """Whether the reference waits for the device in its forward."""
    tree, slots = buffers.own_in.lay([inputs])
    buffers.local.models = {0: side.model}
    for ahead in (False, True):
        buffers.local_block(tree, slots, train, ahead)
    return buffers.hung
