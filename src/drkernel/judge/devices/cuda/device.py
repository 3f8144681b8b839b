"""A GPU: tasks at their published sizes, and times that are measured beside the reference's."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from drkernel.judge.boundary.cuda import recorder
from drkernel.judge.boundary.cuda.activity import DeviceWork
from drkernel.judge.devices.base import ExamPolicy, Measurement, Submission
from drkernel.judge.devices.cuda import same_work, timer
from drkernel.judge.devices.cuda.buffers import DeviceBuffers
from drkernel.judge.devices.cuda.gpu_lock import GpuLease
from drkernel.judge.devices.cuda.single_calls import SingleCall
from drkernel.judge.devices.cuda.timer import PairedTimer
from drkernel.judge.devices.cuda.timing import Timing, combined
from drkernel.judge.devices.limits import Limits, limits_of, roofline
from drkernel.judge.devices.simulated.gpus import GPUS, Gpu
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.roofline import Roofline, for_precision
from drkernel.judge.trusted import attribution, prepare, timed_shapes
from drkernel.judge.trusted.cases import cases, plans, reference_model
from drkernel.judge.trusted.cases.cases import Case, Seeds
from drkernel.judge.trusted.comparison import slices
from drkernel.judge.trusted.comparison.mismatch import Mismatch
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.sizes import footprint, shrink
from drkernel.judge.trusted.sizes.footprint import Footprint
from drkernel.judge.trusted.sizes.shrink import Cost
from drkernel.judge.trusted.spent import spent
from drkernel.judge.trusted.verdicts import VerdictReached
from drkernel.tasks.module import Reference
from drkernel.types import KernelTime, Task

HIDDEN_TARGET, HIDDEN_LIMIT = Cost(2**22, 2**24, 2e11), Cost(2**40, 2**40, 1e18)
"""The hidden shapes are varied from sizes that are shrunk to the first, if the task allows it: telling, yet much
cheaper than many a published shape. Any size is accepted otherwise."""
SHORT_US = 50.0
"""Calls that take less are timed in two processes: where a process lies in memory changes them by 2 to 4 %."""
_ATTEMPTS = ((2, 1), (4, 2))
"""Blocks at least, and how much longer they are than usual."""

_OTHER_INPUTS = 2.0
"""By how much bounds that come from other inputs are wider."""
_EXPLAINED_FACTOR = 10.0
"""How much longer than modelled recorded operators may take."""
_SPANNED_FACTOR = 1.25
"""How much longer than the spans of recorded operators other kernels may run, in the same call."""


@dataclass
class CudaPreparedTask(PreparedTask):
    """A task that is ready to be set to submissions on this GPU."""

    profiles: dict[bool, list[KernelTime]]
    """Of the reference, by mode."""
    waits: dict[bool, bool]
    """Whether the reference waits for the device, by mode."""
    bytes_per_call: int
    """Inputs or outputs of one call, whichever is more."""
    footprint: Footprint
    """Of one call."""


class CudaDevice:
    """The GPU of this process (`devices.base.Device`).

    Args:
        secret: hidden shapes derive from it.
        buffers: the memory through which inputs and outputs go.
        lease: this examiner's lease of the GPU.
        pause: see `Device.pause`.
        timed_shapes: shapes at which submissions are timed, the published one included.
    """

    policy = ExamPolicy(
        budget_factor=1.0, repeat_cases=0, lean_cases=True, near_repeat_in_fp64=False, fresh_last_case=False
    )

    def __init__(
        self,
        secret: bytes,
        buffers: DeviceBuffers,
        lease: GpuLease,
        pause: Callable[[], float],
        timed_shapes: int = 1,
    ):
        self._secret, self._buffers, self._lease, self._pause = secret, buffers, lease, pause
        self._gpu, self._timed_shapes = torch_gpu(), timed_shapes
        self._needs: tuple[str, Footprint] | None = None
        """Of the task that was asked for last, by its digest."""

    def pause(self) -> float:
        """Lets other examiners be alone on the GPU."""
        return self._pause()

    def needs(self, task: Task) -> Footprint:
        """What a task needs of the GPU's memory, found out once. Raises DrKernelError where it cannot be made."""
        if self._needs is None or self._needs[0] != task.digest:
            self._needs = task.digest, footprint.of(Reference(task), self._buffers.large_from)
        return self._needs[1]

    def prepare(self, task: Task) -> CudaPreparedTask:
        """Prepares a task at its published sizes.

        Raises:
            DrKernelError: the reference fails.
        """
        bare = Task(task.id, task.source, task.entry_point, precision=task.precision)
        with spent("small sizes"):
            base = shrink.fit(bare, HIDDEN_TARGET, HIDDEN_TARGET, HIDDEN_LIMIT)
        published = Task(
            task.id, base.source, task.entry_point, task.split, task.level, task.family, None, task.precision
        )
        reference = Reference(published)
        cost_model, needs = Roofline(for_precision(self._gpu, task.precision), Scale()), self.needs(task)
        self._buffers.fit(needs)
        small = Reference(base, base.small)
        large = self._buffers.large
        given = reference, small, self._secret, cost_model, recorder.record, reference, large
        prepared = prepare.prepare(*given, pause=self._pause)
        with spent("times"):
            found = self._with_times(prepared, needs)
        if self._timed_shapes > 1:
            found.timed, found.dropped = timed_shapes.prepared_elsewhere(
                prepared,
                small,
                reference,
                self._secret,
                self._timed_shapes - 1,
                lambda _: cost_model,
                recorder.record,
                functools.partial(self._admits, found.footprint),
                lambda other: self._with_times(other, found.footprint),
                alone=self._lease.exclusive,
            )
            found.footprint = max((found, *found.timed), key=lambda each: each.footprint.outputs).footprint
        return found

    def _admits(self, published: Footprint, other: Footprint) -> bool:
        """Whether another shape of a task has room where the published one has."""
        sizes, other = ("inputs", "outputs", "weights"), dataclasses.replace(other, large_from=published.large_from)
        fits = not self._buffers.large and self._buffers.fits(other)
        return fits or all(getattr(other, name) <= getattr(published, name) for name in sizes)

    def _with_times(self, prepared: PreparedTask, needs: Footprint) -> CudaPreparedTask:
        """The prepared task with what is measured of its reference.

        Args:
            needs: what is known of its footprint. More outputs may turn up.
        """
        reference, seeds = prepared.reference, Seeds(self._secret, prepared.task.digest)
        profiles, waits, size = {}, {}, 0
        for train, *_ in prepared.mode_alternatives:
            model = reference_model.build(reference, seeds("profile"))
            inputs = reference.inputs(seeds("profile"))
            outputs = reference.forward(model.model.train(train), inputs)
            size = max(size, *(footprint.bytes_of(tree) for tree in (inputs, outputs)))
            if (written := footprint.bytes_of(outputs)) > needs.outputs:
                needs = dataclasses.replace(needs, outputs=written)
            del outputs
            self._buffers.fit(needs)
            with self._lease.exclusively(), self._lease.quiet():
                waits[train] = self._buffers.waits(model.model, train, inputs)
                rows = recorder.times(lambda: reference.forward(model.model, inputs), recorder.empty_span(), 0.01)  # noqa: B023
            profiles[train] = [KernelTime(name, calls, us, triton) for name, triton, calls, us in rows]
        return CudaPreparedTask(
            **{field.name: getattr(prepared, field.name) for field in dataclasses.fields(prepared)},
            profiles=profiles,
            waits=waits,
            bytes_per_call=size,
            footprint=needs,
        )

    def measure(self, prepared: CudaPreparedTask, submission: Submission) -> Measurement:
        """Profiles and times a submission, in two processes where its calls are short.

        Raises:
            VerdictReached: timed calls do not do what the examined ones did, or times are forged.
            Failed, PeerClosed, DeadlineExceeded, ProtocolViolation: see RunnerClient.
        """
        train = submission.case.plan.train
        reference_profile = sorted(prepared.profiles[train], key=lambda row: -row.microseconds)
        submission, profile, timing, work, singles = self._measured(prepared, submission, reference_profile)
        processes = 1 + (timing.submission_us < SHORT_US and not timing.is_slow)
        if processes > 1:
            submission, _, again, _, more = self._measured(prepared, submission.restart(), reference_profile)
            timing, singles = combined(timing, again), singles + more
        own_us, other_us, moved_us = submission.client.activity.split_us(work)
        cost = prepared.reference_costs[train]
        explained_us = sum(cost.cost_model.work_us(row) for row in submission.trace.rows if not row.triton)
        most_us = attribution.most_explained_us(cost, submission.trace, reference_profile, _EXPLAINED_FACTOR)
        spanned_us = sum(row.microseconds + row.calls * self._buffers.empty_us for row in profile if not row.triton)
        same_work.expect_explained(submission, work, most_us, _SPANNED_FACTOR * spanned_us)
        _expect_joined_streams(submission)
        share = roofline(cost.least, torch_limits(), prepared.task.precision, timing.submission_us)
        evidence = {
            "speedup": round(timing.speedup, 4),
            "interval": [round(timing.low, 4), round(timing.high, 4)],
            "calls": timing.calls,
            "processes": processes,
            "launch_latency_hidden": timing.gated,
            "uneven": timing.doubtfully_uneven,
            "floor_us": round(timing.floor_us, 2),
            "claimed_us": round(timing.claimed_us, 2),
            "outside_us": round(timing.outside_us, 2),
            "single_calls": [call.facts() for call in singles],
            "usual": {kind: usual.facts() for kind, usual in self._buffers.usual.items()},
            "device_us": [round(us, 2) for us in (own_us, other_us, moved_us, explained_us)],
            "spanned_us": [round(us, 2) for us in (submission.client.activity.busy_with_others_us(work), spanned_us)],
        }
        return Measurement(
            timing.low,
            timing.reference_us,
            timing.submission_us,
            tuple(reference_profile),
            tuple(profile),
            own_us / ((own_us + other_us + moved_us) or 1.0),
            {"timing": evidence, "roofline": share},
        )

    def _measured(
        self, prepared: CudaPreparedTask, submission: Submission, reference_profile: list[KernelTime]
    ) -> tuple[Submission, list[KernelTime], Timing, list[DeviceWork], list[SingleCall]]:
        """The submission in the process that was measured, its kernels, longest first, its times beside the
        reference's, what the device executed for one forward, and single calls. Where its kernels work less when they
        are timed, something else may have been on the GPU before; once more, in another process."""
        for attempt in range(2):
            profile, timing, work, examined, singles = self._measure_once(prepared, submission, reference_profile)
            less = same_work.less(submission, (work, examined), singles)
            if less and not attempt:
                submission = submission.restart()
                continue
            if less:
                submission.refuse("differs_when_timed", less)
            break
        return submission, profile, timing, work, singles

    def _measure_once(
        self, prepared: CudaPreparedTask, submission: Submission, reference_profile: list[KernelTime]
    ) -> tuple[list[KernelTime], Timing, list[DeviceWork], list[DeviceWork], list[SingleCall]]:
        """As `_measured`, in the present process; before the single calls, what the device executed for a call whose
        outputs are right."""
        paired = self._timer(prepared, submission)
        reference_us, launches = sum(row.microseconds for row in reference_profile), _launches(reference_profile)
        _or_verdict(paired.warm_up, reference_us, launches)
        waited = self._lease.waited_s
        with self._lease.exclusively():
            submission.client.extend_deadline(self._lease.waited_s - waited)
            with self._lease.quiet():
                submission.client.forget_activity()
                profile = submission.client.profile(submission.case, self._buffers.empty_us)
                work = submission.client.activity.new()[1:]  # without what keeps the device waiting
                examined, expect_right = same_work.of_right_call(submission)
            paired.kernels = same_work.names(work, submission.client.activity.own)
            timing = _timed(paired, profile, reference_profile, submission.seeds)
        expect_right()
        _or_verdict(paired.finish)
        same_work.expect_same(submission, work, paired.singles.calls)
        for found in paired.traces:
            if difference := attribution.difference(submission.trace, found):
                submission.refuse("differs_when_timed", f"when it is timed, forward {difference}")
        ordered = sorted(profile, key=lambda row: -row.microseconds)
        return ordered, timing, work, examined, paired.singles.calls

    def _timer(self, prepared: CudaPreparedTask, submission: Submission) -> PairedTimer:
        train, expected = submission.case.plan.train, submission.case.expected
        within: Callable[[Any, Any], Mismatch | None] | None = None
        if self._buffers.large:
            bounds = [bound and bound.times(_OTHER_INPUTS) for bound in expected.bounds()]
            within = functools.partial(slices.within, bounds) if bounds else lambda rounded, outputs: None
        return PairedTimer(
            self._buffers,
            submission.client,
            submission.reference_model,
            train,
            lambda number: prepared.reference.inputs(submission.seeds("timed", number)),
            prepared.bytes_per_call,
            expected.tolerance(),
            prepared.waits[train],
            self._lease.quiet,
            lambda number: submission.seeds("timed seed", number),
            within,
            functools.partial(_other_values, prepared, submission),
            submission.case.plan.model,
            expected.edits,
        )


def _other_values(prepared: CudaPreparedTask, submission: Submission) -> Case | None:
    """A case at the timed shape whose values are not those of the given inputs; None where none suits the task."""
    train, number = submission.case.plan.train, submission.case.plan.model
    plan, seed = plans.mixed_plan(train, number), submission.seeds("timed values", number)
    model, cut = submission.reference_model, prepared.cuts.get(train)
    return cases.draw(prepared.task, plan, model, seed, prepared.sources, cut)


def _timed(paired: PairedTimer, profile: list[KernelTime], reference_profile: list[KernelTime], seeds: Seeds) -> Timing:
    """Times a submission again, in longer blocks, where the first attempt is doubtful.

    Raises:
        VerdictReached: the second one is, too.
    """
    both = profile, reference_profile
    expected_us = max(sum(row.microseconds for row in rows) for rows in both)
    launches = max(_launches(rows) for rows in both)
    for blocks, longer in _ATTEMPTS:
        timing = _or_verdict(paired.run, expected_us, launches, seeds("bootstrap", longer), blocks, longer)
        if not (timing.is_false or timing.gpu_kept_busy or timing.doubtfully_uneven or timing.works_outside):
            return timing
    evidence = {"claimed_us": timing.claimed_us, "floor_us": timing.floor_us, "busy_us": timing.copy_delay_us}
    if timing.gpu_kept_busy:
        detail = f"between its calls, work of the submission keeps the GPU busy ({timing.copy_delay_us:.0f} us)"
        raise VerdictReached("hack", "background_work", detail, **evidence)
    if timing.works_outside:
        detail = f"kernels of forward run for {timing.outside_us:.3g} us before their call begins or after it has ended"
        raise VerdictReached("incorrect", "unjoined_stream", detail, **evidence)
    if timing.is_false:
        detail = f"a call alone takes {timing.floor_us:.3g} us, among others it claims {timing.claimed_us:.3g} us"
        raise VerdictReached("hack", "forged_time", detail, **evidence)
    return timing


def _expect_joined_streams(submission: Submission) -> None:
    """The last question to a process, since it may leave the process in disorder."""
    if "stream" in submission.source.lower() and not submission.client.joins(submission.case):
        detail = "forward returns without waiting for what it has started on another stream"
        raise VerdictReached("incorrect", "unjoined_stream", detail)


def _or_verdict(measure: Callable[..., Any], *args: Any) -> Any:
    """Measures; what the timer finds out about a submission ends its examination."""
    try:
        return measure(*args)
    except timer.Mismatched as problem:
        raise VerdictReached(
            "incorrect", "wrong_values", f"{problem} (case: timed calls)", case="timed calls"
        ) from None


def _launches(rows: list[KernelTime]) -> int:
    return sum(row.calls for row in rows)


def torch_gpu() -> Gpu:
    """What the roofline model knows of this GPU, or of the one most like it."""
    name = torch.cuda.get_device_name()
    return next((gpu for key, gpu in GPUS.items() if key in name), GPUS["H200"])


def torch_limits() -> Limits | None:
    """The limits of this GPU, where they are known."""
    return limits_of(torch.cuda.get_device_name(), torch.cuda.get_device_capability())
