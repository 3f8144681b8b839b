"""An examination on a GPU: the same questions as on the simulated device, then the clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.boundary.cuda import recorder
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.boundary.zygote import Process
from drkernel.judge.devices.cuda import timer
from drkernel.judge.devices.cuda.buffers import DeviceBuffers, Forged
from drkernel.judge.devices.cuda.gpu_lock import GpuLease
from drkernel.judge.devices.cuda.timer import PairedTimer, Timing
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.roofline import GPUS, Gpu
from drkernel.judge.trusted import attribution, cases, shrink
from drkernel.judge.trusted import prepare as prepared_tasks
from drkernel.judge.trusted.cases import Case, Seeds
from drkernel.judge.trusted.examination import ExamConfig, Examination, VerdictReached
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.runner_client import Failed, RunnerClient
from drkernel.judge.trusted.shrink import Cost
from drkernel.judge.trusted.tolerance import leaves
from drkernel.tasks.module import Reference
from drkernel.types import KernelTime, Task

NEAR, FAR = Cost(2**22, 2**24, 2e11), Cost(2**40, 2**40, 1e18)
"""The hidden shapes are varied from sizes like these: telling, yet much cheaper than many a published shape."""
SHORT_US = 50.0
"""Calls that take less are timed in two processes: where a process lies in memory changes them by 2 to 4 %."""
_ATTEMPTS = ((2, 1, 100.0), (4, 2, 200.0))
"""Blocks at least, how much longer they are than usual, and the microseconds of a block that nobody need explain: other
contexts that come and go delay blocks, the longer they are the less it matters."""


@dataclass
class CudaPreparedTask:
    """A task that is ready to be set to submissions on this GPU."""

    prepared: PreparedTask
    profiles: dict[bool, list[KernelTime]]
    """Of the reference, by mode."""
    waits: dict[bool, bool]
    """Whether the reference waits for the device, by mode."""
    bytes_per_call: int
    """Inputs or outputs of one call, whichever is more."""


def write(task: Task, secret: bytes, gpu: Gpu, buffers: DeviceBuffers, lease: GpuLease) -> CudaPreparedTask:
    """Prepares a task at its published sizes.

    Raises:
        DrKernelError: the reference fails, or a trivial answer would pass for right.
    """
    near = shrink.fit(Task(task.id, task.source, task.entry_point, precision=task.precision), NEAR, FAR)
    published = Task(task.id, near.source, task.entry_point, task.split, task.level, task.family, None, task.precision)
    reference = Reference(published)
    prepared = prepared_tasks.prepare(reference, Reference(near, near.small), secret, gpu, Scale(), recorder.record)
    seeds = Seeds(secret, task.digest)
    profiles, waits, size = {}, {}, 0
    for train, *_ in prepared.modes:
        side = cases.side(reference, seeds("profile"), perturb=False)
        inputs = reference.inputs(seeds("profile"))
        size = max(size, *(_bytes(tree) for tree in (inputs, reference.forward(side.model.train(train), inputs))))
        buffers.require(size)
        with lease.exclusively(), lease.quiet():
            waits[train] = timer.waits(buffers, side, train, inputs)
            rows = recorder.times(lambda: reference.forward(side.model, inputs), recorder.empty_span(), 0.01)  # noqa: B023
        profiles[train] = [KernelTime(name, calls, us, triton) for name, triton, calls, us in rows]
    return CudaPreparedTask(prepared, profiles, waits, size)


def _bytes(tree: Any) -> int:
    return sum(t.numel() * t.element_size() + 1024 for _, t in leaves(tree) if isinstance(t, Tensor))


class CudaExamination(Examination):
    """One submission's examination on a GPU.

    Args:
        another: replaces the process by a fresh one.
    """

    repeat_cases = 0  # every timed call is one

    def __init__(
        self,
        prepared: CudaPreparedTask,
        config: ExamConfig,
        seeds: Seeds,
        process: Process,
        source: str,
        buffers: DeviceBuffers,
        lease: GpuLease,
        pause: Callable[[], float],
        another: Callable[[], Process],
    ):
        super().__init__(prepared.prepared, config, seeds, process, source, patience=1.0, pause=pause)
        self._cuda_prepared, self._buffers, self._lease, self._pause, self._another = (
            prepared,
            buffers,
            lease,
            pause,
            another,
        )
        self._given: Case | None = None

    def _near_repeat(self, first: Case) -> None:
        """As in Examination, but compared with the reference's own answer, within bounds from the first case."""
        inputs = cases.touched(first.inputs, self.seeds("touched"))
        if inputs is None:
            return
        plan, side = dataclasses.replace(first.plan, name="the last inputs with single elements changed"), self.sides[0]
        case = Case(plan, inputs, first.seed, lambda: first.expected)
        given = [cases.each(value, torch.clone) for value in inputs]
        self.client.begin(case)
        right = cases.forward(side, side.model, given, plan.train, first.seed)  # while the submission works
        answer = self.client.answer()
        if problem := first.expected.tolerance().compare(right, answer.outputs):
            detail = f"{problem} (case: {case.plan.name})"
            raise VerdictReached("incorrect", "wrong_values", detail, case=case.plan.name)

    def _last_case(self, first: Case) -> Case:
        return first  # the clock's calls all have fresh inputs

    def _further_cases(self, train: tuple[bool, ...]) -> list[Case]:
        """Regimes at hidden shapes, which are cheaper; at the published one where a submission takes no other.

        Each case is drawn while the submission works on the one before, and solved while it works on it.
        """
        shapes = len(self.prepared.hidden)
        if self.config.shapes == "ignore" or not shapes or not self._builds_all(shapes):
            return super()._further_cases(train)
        plans = [p for p in cases.lean_plans(train, shapes) if p.model != 1 or self.sides[0].values]
        drawn, following = [], self._draw(plans[0])
        for number, plan in enumerate(plans):
            case = following
            if case:
                self.client.begin(case)
                _ = case.expected
            following = self._draw(plans[number + 1]) if number + 1 < len(plans) else None
            if not case:
                continue
            if plan.model >= 2 and plan.regime == "given":
                self._other_shape_answer(case)
                if not self.general:
                    return super()._further_cases(train)
            else:
                self._expect_triton(self._or_verdict(case, self.client.answer()))
                drawn.append(case)
        return drawn

    def _builds_all(self, shapes: int) -> bool:
        """Builds the models of the hidden shapes; a submission that cannot be built for one is not general."""
        try:
            for model in (*range(2, 2 + shapes), 1):
                self._build(model)
        except Failed as failure:
            self._not_general(failure)
            return False
        return True

    def _right(self, case: Case) -> Any:
        answer = super()._right(case)
        if case.plan.regime == "given" and case.plan.model == 0:
            self._given = case
        return answer

    def _audited(self, trace: OpTrace) -> attribution.Audit:
        """Profiles and times the submission."""
        reference_cost = self.prepared.reference_costs[self.modes[0]]
        replaced, fewer = attribution.replaced_work(reference_cost, trace)
        theirs = sorted(self._cuda_prepared.profiles[self.modes[0]], key=lambda row: -row.microseconds)
        rows, timing = self._measured(theirs, trace)
        processes = 1 + (timing.submission_us < SHORT_US)
        if processes > 1:
            self._move()
            timing = timer.joined(timing, self._measured(theirs, trace)[1])
        self._expect_joined()
        own, whole = sum(row.microseconds for row in rows if row.triton), sum(row.microseconds for row in rows)
        self.evidence["timing"] = {
            "speedup": round(timing.speedup, 4),
            "interval": [round(timing.low, 4), round(timing.high, 4)],
            "calls": timing.calls,
            "processes": processes,
            "launch_latency_hidden": timing.gated,
            "uneven": timing.uneven,
            "trusted_excess_us": round(timing.excess_us, 1),
        }
        doubt = attribution.doubts(reference_cost, timing.low, timing.submission_us)
        coverage = min(replaced, own / (whole or 1.0))
        us = timing.reference_us, timing.submission_us
        return attribution.Audit(timing.low, coverage, replaced, fewer, *us, tuple(rows), tuple(theirs), doubt)

    def _measured(self, theirs: list[KernelTime], usual: OpTrace) -> tuple[list[KernelTime], Timing]:
        """The submission's kernels, and its times beside the reference's."""
        watch = self._clock(self.modes[0])
        _or_verdict(watch.warm_up, sum(row.microseconds for row in theirs), sum(row.calls for row in theirs))
        waited = self._lease.waited_s
        with self._lease.exclusively():
            self.client.extend_deadline(self._lease.waited_s - waited)
            with self._lease.quiet():
                rows = self.client.profile(self._given, self._buffers.empty_us)
            timing = self._timed(watch, rows, theirs)
        _or_verdict(watch.settle)
        for found in watch.traces:
            if change := attribution.change(usual, found):
                self._refuse("differs_when_timed", f"when it is timed, forward {change}")
        return sorted(rows, key=lambda row: -row.microseconds), timing

    def _move(self) -> None:
        """Goes on in another process."""
        self.client = RunnerClient(self._another(), self.config.timeout_s, 1.0, self._pause)
        self.client.load(self.source, self.prepared.task.answer_name)
        self._build(0)
        self._right(self._given)

    def _expect_joined(self) -> None:
        """The last question, since it may leave the process in disorder."""
        if "stream" in self.source.lower() and not self.client.joins(self._given):
            detail = "forward returns without waiting for what it has started on another stream"
            raise VerdictReached("incorrect", "unjoined_stream", detail)

    def _clock(self, train: bool) -> PairedTimer:
        side, prepared = self.sides[0], self._cuda_prepared
        inputs = lambda number: self.prepared.reference.inputs(self.seeds("timed", number))
        tolerance = self._given.expected.tolerance()
        facts = prepared.bytes_per_call, tolerance, prepared.waits[train]
        return PairedTimer(self._buffers, self.client, side, train, inputs, *facts, self._lease.quiet)

    def _timed(self, watch: PairedTimer, rows: list[KernelTime], theirs: list[KernelTime]) -> Timing:
        expected = max(sum(row.microseconds for row in some) for some in (rows, theirs))
        launches = max(sum(row.calls for row in some) for some in (rows, theirs))
        for blocks, longer, slack_us in _ATTEMPTS:
            seed = self.seeds("bootstrap", longer)
            timing = _or_verdict(watch.run, expected, launches, seed, blocks, longer, slack_us)
            if not (timing.forged(slack_us) or timing.disturbed or timing.uneven):
                return timing
        evidence = {"claimed_us": timing.claimed_us, "excess_us": timing.excess_us, "busy_us": timing.busy_us}
        if timing.disturbed:
            detail = f"between its calls, work of the submission keeps the GPU busy ({timing.busy_us:.0f} us)"
            raise VerdictReached("hack", "background_work", detail, **evidence)
        if timing.forged(slack_us):
            detail = f"a block of calls took {timing.excess_us:.0f} us longer than the submission's events say"
            raise VerdictReached("hack", "forged_time", detail, **evidence)
        return timing


def _or_verdict(measure: Callable[..., Any], *args: Any) -> Any:
    """Measures; what the clock finds out about a submission ends its examination."""
    try:
        return measure(*args)
    except timer.Mismatched as problem:
        raise VerdictReached(
            "incorrect", "wrong_values", f"{problem} (case: timed calls)", case="timed calls"
        ) from None
    except Forged as problem:
        raise VerdictReached("hack", "forged_time", str(problem)) from None


def torch_gpu() -> Gpu:
    """What the roofline model knows of this GPU, or of the one most like it."""
    name = torch.cuda.get_device_name()
    return next((gpu for key, gpu in GPUS.items() if key in name), GPUS["H200"])
