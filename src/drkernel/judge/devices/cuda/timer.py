"""How fast a submission is on a GPU: it and the reference in turn, on fresh inputs, each call on a cold L2 cache.

One block
    A few calls of one side, each on inputs of its own. All are enqueued on one stream. Before each call the stream
    waits for a semaphore, a 32-bit value in the shared memory of the inputs, and reads a buffer larger than the L2
    cache. After the call its outputs are copied into shared memory.

What is hidden from the submission
    The inputs of a block. They appear only once the runner has replied that the whole block is enqueued, and the
    semaphore is set right after. So nothing can be computed before the block, and launch latency is not timed.
    Single calls between the blocks (single_calls.py). Such a call sees its own inputs alone, and the examiner's clock
    times it. What takes less time in blocks than there, because it works ahead or because the report is false, counts
    as long as it takes there. One of them has other values than the given inputs; only its outputs count.

What is trusted
    The inputs, the outputs that are expected, and the examiner's own clock. The runner reports how long each call of a
    block took by its events; single calls bound that report (`Timing.at_least`). The copy of the inputs takes longer
    than it must while the runner keeps the GPU busy (`Timing.gpu_kept_busy`). Outputs of every call are compared. What
    every call launched is recorded, as in the examination, and the caller compares that too (`PairedTimer.traces`).

Blocks go reference, submission, submission, reference until the interval of the ratio is narrow or the time is up.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch

from drkernel.judge.boundary.cuda.activity import DeviceWork, together_us
from drkernel.judge.boundary.cuda.calls import SCATTERED
from drkernel.judge.boundary.cuda.device_memory import HEADER
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.boundary.shared_tensors import decode
from drkernel.judge.devices.cuda.buffers import GATED_S, Block, DeviceBuffers, block_of, view_of_copy
from drkernel.judge.devices.cuda.interleaving import MIN_CALLS, NARROW, calls_in_a_block, rounds
from drkernel.judge.devices.cuda.output_slots import Mismatched, OutputSlots
from drkernel.judge.devices.cuda.single_calls import KINDS, PAUSES_S, SingleCalls, agree, floor_us, true_us
from drkernel.judge.devices.cuda.timing import Timing, timing_of
from drkernel.judge.trusted.cases.cases import Case
from drkernel.judge.trusted.cases.reference_model import ReferenceModel
from drkernel.judge.trusted.comparison.block_tolerance import Tolerance
from drkernel.judge.trusted.comparison.mismatch import Mismatch
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.processes.runner_client import RunnerClient, traces_of

MIN_CALLS_PER_BLOCK, LONG_BLOCK_US, MAX_LAUNCHES_PER_BLOCK = 3, 10_000.0, 400
"""A block has so many calls even if they take longer than interleaving.BLOCK_US, unless they take as long as this."""
BUDGET_S, SHORT_OF_CALLS_S = 0.05, 0.3
"""When timing ends at the latest; and when it does while there are fewer than MIN_CALLS."""
WIDE, EXTENDED_BUDGET_S = 0.03, 0.25
"""A lower bound so far below the speed-up, as after one delayed call of few, gets this much time instead."""
COPIED_PER_S = 1e12
"""Bytes per second that a copy surely reaches."""
_MAX_LATE = 2
"""Blocks that a runner may fail to enqueue in time before its calls are no longer enqueued ahead."""
SINGLE_SHARE = 0.5
"""How often there is a single call before a block; those that are still missing come at the end."""


class PairedTimer:
    """Times one submission against the reference.

    Args:
        inputs: inputs(n) is the n-th list of fresh inputs.
        bytes_per_call: inputs or outputs of one call, whichever is more.
        tolerance: how far outputs may be apart.
        waits: whether the reference waits for the device in its forward, so that its calls cannot be enqueued ahead.
        quiet: entered while calls are timed.
        seeds: seeds(n) is the n-th seed of PyTorch's generators; as unpredictable as those of the examination's calls.
        within: of a large task, compares the reference's outputs with a submission's, instead of `tolerance`.
        draw_other: draws a case with other values than the given inputs have; None where none suits the task.
        model: which of the submission's models answers; see plans.
        edits: whether the reference changes its inputs, so that the submission gets them before it does.
    """

    def __init__(
        self,
        buffers: DeviceBuffers,
        client: RunnerClient,
        side: ReferenceModel,
        train: bool,
        inputs: Callable[[int], list],
        bytes_per_call: int,
        tolerance: Tolerance,
        waits: bool,
        quiet: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
        seeds: Callable[[int], int] = lambda number: number,
        within: Callable[[Any, Any], Mismatch | None] | None = None,
        draw_other: Callable[[], Case | None] = lambda: None,
        model: int = 0,
        edits: bool = False,
    ):
        self._buffers, self._client, self._train, self._edits = buffers, client, train, edits
        self._inputs, self._bytes, self._tolerance, self._waits = inputs, bytes_per_call, tolerance, waits
        self._quiet, self._within, self._draw_other, self._model = quiet, within, draw_other, model
        self._other: Case | None = None
        self._unchecked: tuple[Case, Any] | None = None
        """The case with other values, and the submission's outputs."""
        self._uncompared: tuple[torch.Tensor, torch.Tensor, OutputSlots, int] | None = None
        self._seeds = map(seeds, itertools.count())
        self._count = itertools.count()
        self.singles = SingleCalls(
            buffers,
            client,
            train,
            lambda: inputs(next(self._count)),
            lambda: next(self._seeds),
            self._compare,
            self.flush_comparisons,
            model,
        )
        buffers.local.models = {0: side.model}
        self._late, self._ahead, self._warm = 0, True, 0
        self.traces: list[OpTrace] = []
        """What each call of the last run launched."""
        self.kernels: frozenset[str] = frozenset()
        """The names of those that the submission's forward runs on the device."""
        self._copy_delays_us: list[float] = []
        self._outside_us: list[float] = []
        self.block_work: list[DeviceWork] = []
        """What the device executed for the last of the submission's blocks that were enqueued ahead."""
        self._drawn: list[list] = []
        """Inputs of the next calls, where there was time to draw them."""

    def run(self, expected_us: float, launches: int, seed: int, blocks: int, longer: int) -> Timing:
        """Times until the interval is narrow, the submission surely slow, or the time up. `finish` must follow.

        Args:
            expected_us: about how long the slower side takes.
            launches: kernels that one call launches at most.
            blocks: of each side at least.
            longer: how many times as long as usual blocks may take.

        Raises:
            Mismatched, Failed, PeerClosed, DeadlineExceeded, ProtocolViolation.
        """
        number = self._calls(expected_us, launches, longer)
        secret = numpy.random.default_rng(seed)
        self._warm_up(number)
        self._late, self._copy_delays_us, self._outside_us, self.traces = 0, [], [], []
        reference_blocks, submission_blocks = list[Block](), list[Block]()
        start = time.perf_counter()
        for (first, _), even in rounds(("reference", "submission")):
            with self._quiet():
                if secret.random() < SINGLE_SHARE:
                    start += self._single_call(secret)
                one, other = self._pair(number, first == "reference")
            reference_blocks.append(one)
            submission_blocks.append(other)
            elapsed, done = time.perf_counter() - start, len(submission_blocks)
            if not even or done < blocks or (number * done < MIN_CALLS and elapsed < SHORT_OF_CALLS_S):
                continue
            timing = timing_of(
                reference_blocks, submission_blocks, seed, self.gated, self._copy_delays_us, self._outside_us or [0.0]
            )
            if timing.is_slow:
                return timing
            budget = EXTENDED_BUDGET_S if timing.low < (1 - WIDE) * timing.speedup else BUDGET_S
            narrow = timing.high - timing.low < 2 * NARROW * timing.speedup
            if elapsed > budget or narrow:
                floor_us = self._floor_us(secret, reference_blocks, timing.submission_us)
                return timing.at_least(floor_us, true_us(floor_us))
        raise AssertionError

    def _floor_us(self, secret: numpy.random.Generator, reference: list[Block], claimed_us: float) -> float:
        """What single calls say that a call takes at least: where blocks claim less, the lowest that many say."""
        copy_us = float(numpy.median([us for block in reference for us in block.copy]))
        floors: list[float] = []
        for pause_s in (0.0, *PAUSES_S):
            time.sleep(pause_s)
            with self._quiet():
                while self._single_call(secret):
                    pass
            floors.append(floor_us(self.singles.latest, self._buffers.usual, copy_us, self.kernels))
            if agree(claimed_us, floors[-1]):
                break
            self.singles.contest()
        self.traces += self.singles.traces
        return min(floors[2:] or floors[-1:])  # few calls only tell whether to ask more

    def _single_call(self, secret: numpy.random.Generator) -> float:
        """A single call, if one is missing; the seconds that it took."""
        begun, kinds = time.perf_counter(), self.singles.missing(waiting=not self.gated)
        if self._other and secret.integers(len(kinds) + 1) == 0:
            others = KINDS[:2] if self.gated else KINDS[2:]
            self._ask_other(others[secret.integers(len(others))])
        elif kinds:
            self.singles.ask(kinds[secret.integers(len(kinds))])
        return time.perf_counter() - begun if kinds else 0.0

    def _ask_other(self, kind: str) -> None:
        """A single call on other values, whose outputs must be as right as those of examined calls."""
        assert self._other
        case, self._other = self._other, None
        reference, submission, got = self.singles.ask_other(kind, case.inputs, case.seed)
        flat = self._slots(reference, submission)
        view = self._buffers.shared_out.view if got is None else functools.partial(view_of_copy, got)
        outputs = decode(reference.calls[0].outputs, lambda index: OutputTensor(view(flat.submission[index])))
        self._unchecked = case, outputs
        if got is None:
            self._check_other()

    def _check_other(self) -> None:
        """Compares the outputs on other values, if they were not yet."""
        unchecked, self._unchecked = self._unchecked, None
        if unchecked:
            case, outputs = unchecked
            if problem := case.check(outputs):
                raise Mismatched(f"{problem.text} ({case.plan.name})")

    def warm_up(self, least_us: float, launches: int) -> None:
        """What needs no quiet: blocks as long as `run` makes them at most, where a call takes at least `least_us`."""
        begun = time.monotonic()
        if other := self._draw_other():
            self._other, _ = other, other.expected
            self._client.extend_deadline(time.monotonic() - begun)  # it is not the submission's time
        if self._buffers.large:
            return self._warm_up(1)
        number = self._calls(least_us, launches)
        self._warm_up(number)
        self.singles.precompute(self._bytes, (other.inputs, other.seed) if other else None)
        self._draw_ahead(number)

    def block_us(self, number: int) -> list[float]:
        """The submission's calls in one block, as its runner reports them."""
        return self._pair(number, True)[1].forward

    def finish(self) -> None:
        """Compares what need not be compared while calls are timed. Raises Mismatched."""
        self.flush_comparisons()
        self._check_other()

    def flush_comparisons(self) -> None:
        """Compares the values of the last block, which is put off until the device is idle anyway.

        Raises:
            Mismatched.
        """
        uncompared, self._uncompared = self._uncompared, None
        if uncompared:
            expected, got, slots, number = uncompared
            if problem := self._tolerance.check(expected, got, slots.reference, slots.submission, HEADER, number):
                raise Mismatched(problem)

    @property
    def gated(self) -> bool:
        """Whether the submission's calls are enqueued ahead, behind the semaphore."""
        return self._late < _MAX_LATE

    def _calls(self, expected_us: float, launches: int, longer: int = 1) -> int:
        """Calls per block. Arguments as of `run`."""
        if self._buffers.large:
            return 1
        room = self._buffers.own_in.size // (self._bytes + 4096)
        few = min(MIN_CALLS_PER_BLOCK, LONG_BLOCK_US / max(expected_us, 1.0))
        wanted = max(few, calls_in_a_block(expected_us))
        return max(1, min(round(longer * wanted), room, MAX_LAUNCHES_PER_BLOCK // max(launches, 1)))

    def _expected(self) -> torch.Tensor:
        """The bytes of the reference's last outputs."""
        return self._buffers.own_out.bytes(HEADER, self._buffers.own_out.top - HEADER)

    def _warm_up(self, number: int) -> None:
        """A pair of blocks that start at once: then, before one waits, every kernel is loaded and there is memory."""
        number = number if self._bytes <= SCATTERED else 1
        if number > self._warm:
            self._ahead, self._warm = False, number
            self._pair(number, True)
            self._ahead = True

    def _pair(self, number: int, reference_first: bool) -> tuple[Block, Block]:
        """The reference's block and the submission's, on the same fresh inputs; their outputs are compared."""
        reference_first = reference_first and not self._edits
        if self._buffers.large:
            return self._large_pair(reference_first)
        (tree, slots), seed = self._draw(number), next(self._seeds)
        if reference_first:
            reference = self._reference(tree, slots, seed)
            submission = self._submission(tree, slots, seed, number)
        else:
            submission = self._submission(tree, slots, seed, number)
            reference = self._reference(tree, slots, seed)
        self._compare(reference, submission)
        return reference, submission

    def _large_pair(self, reference_first: bool) -> tuple[Block, Block]:
        """As `_pair`, one call of each side. The examiner's inputs are the tensors that are drawn."""
        given, seed = self._inputs(next(self._count)), next(self._seeds)
        self._buffers.shift()
        (tree, slots), ahead = self._buffers.shared_in.plan([given]), self._ahead and not self._waits
        ask_reference = lambda: self._buffers.local_block(tree, slots, self._train, seed, ahead, [given])
        reference = ask_reference() if reference_first else None
        submission = self._submission(tree, slots, seed, 1, given)
        reference = reference or ask_reference()
        self._compare(reference, submission)
        return reference, submission

    def _draw(self, number: int) -> tuple[Any, list]:
        """Fresh inputs for each call of a block, in the examiner's own memory."""
        self._draw_ahead(number)
        drawn, self._drawn = self._drawn[:number], self._drawn[number:]
        return self._buffers.own_in.lay(drawn)

    def _draw_ahead(self, number: int) -> None:
        while len(self._drawn) < number:
            self._drawn.append(self._inputs(next(self._count)))

    def _reference(self, tree: Any, slots: list, seed: int) -> Block:
        self.flush_comparisons()  # its outputs take the place of the last block's
        return self._buffers.local_block(tree, slots, self._train, seed, ahead=self._ahead and not self._waits)

    def _submission(self, tree: Any, slots: list, seed: int, number: int, given: list | None = None) -> Block:
        value = self._buffers.next_values(number)
        if self._ahead and self.gated:
            self._enqueue_gated(tree, slots, seed, value)
            self.flush_comparisons()  # while the runner enqueues its calls
            self._draw_ahead(number if given is None else 0)
            in_time = self._client.answered(GATED_S)
            self._late += not in_time
            if in_time:
                self._note_launches(number)
            self._client.activity.skip()
            self._publish_inputs(value + number - 1, given)
            if not in_time:
                self._note_launches(number)
            self._client.collect()
            self.block_work = self._client.activity.new()
            outside_us = together_us(self.block_work, self.kernels, self._buffers.flush_kernel)
            self._outside_us.append(outside_us / number)
        else:
            self._publish_inputs(value + number - 1, given)
            self._enqueue_gated(tree, slots, seed, value)
            self._note_launches(number)
            self._client.collect()
        return block_of(self._client.claims())

    def _enqueue_gated(self, tree: Any, slots: list, seed: int, value: int) -> None:
        """Has the runner enqueue calls: the first waits for this semaphore value, each further one for one more."""
        question = {
            "model": self._model,
            "args": tree,
            "slots": slots,
            "train": self._train,
            "seed": seed,
            "word": value,
        }
        self._client.post("enqueue_gated", **question)

    def _note_launches(self, number: int) -> None:
        """Takes note of what so many calls have launched; the runner's next reply comes when they are done."""
        answer = self._client.collect()
        self._client.post("wait")
        self.traces += traces_of(answer, number)

    def _publish_inputs(self, value: int, given: list | None) -> None:
        """Makes the block's inputs appear in the runner's memory, then sets the semaphore."""
        buffers = self._buffers
        used = (buffers.own_in if given is None else buffers.shared_in).top - HEADER
        torch.cuda.synchronize()
        start = time.perf_counter()
        if given is not None:
            buffers.publish(given)
        elif used:
            buffers.shared_in.bytes(HEADER, used).copy_(buffers.own_in.bytes(HEADER, used))
        torch.cuda.synchronize()
        self._copy_delays_us.append(1e6 * (time.perf_counter() - start - used / COPIED_PER_S))
        buffers.shared_in.set_semaphore(value)

    def _compare(
        self, reference: Block, submission: Block, expected: torch.Tensor | None = None, got: torch.Tensor | None = None
    ) -> None:
        """Compares the forms of two blocks' outputs, and keeps the values for `flush_comparisons`.

        Args:
            expected, got: the bytes of both sides' outputs, where others have taken their place.
        """
        flat = self._slots(reference, submission)
        if self._within:
            right = decode(reference.calls[0].outputs, lambda index: self._buffers.own_out.view(flat.reference[index]))
            view = lambda index: OutputTensor(self._buffers.shared_out.view(flat.submission[index]))
            found = decode(reference.calls[0].outputs, view)
            if problem := self._within(right, found):
                raise Mismatched(problem.text)
            return
        expected = self._expected() if expected is None else expected
        end = max((slot.offset + slot.nbytes for slot in flat.submission), default=HEADER)
        got = self._buffers.shared_out.bytes(HEADER, end - HEADER).clone() if got is None else got
        self._uncompared = expected, got, flat, len(submission.calls)

    def _slots(self, reference: Block, submission: Block) -> OutputSlots:
        """Where the outputs of a block lie, see `OutputSlots.alike`."""
        facts = self._buffers.own_out.size, self._tolerance.scalar_error
        return OutputSlots.alike(reference.calls, submission.calls, *facts)
