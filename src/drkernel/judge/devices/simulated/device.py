"""The simulated device: tasks at small sizes, which Triton's interpreter can run, and modelled times at full size."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from drkernel.judge.boundary import aten
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.devices.base import ExamPolicy, Measurement, Submission
from drkernel.judge.devices.limits import LIMITS, roofline
from drkernel.judge.devices.simulated import floor, full_size
from drkernel.judge.devices.simulated.dry_runs import DryRuns
from drkernel.judge.devices.simulated.gpus import Gpu
from drkernel.judge.devices.simulated.grids import with_full_grids
from drkernel.judge.devices.simulated.rescale import scale_of
from drkernel.judge.devices.simulated.roofline import Roofline, for_precision
from drkernel.judge.trusted import attribution, prepare, timed_shapes
from drkernel.judge.trusted.attribution import ReferenceCost
from drkernel.judge.trusted.cases.cases import Seeds
from drkernel.judge.trusted.least_work import inputs_read
from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.processes.failures import reading
from drkernel.judge.trusted.processes.zygote import Process
from drkernel.judge.trusted.sizes import long_shapes, resized, shrink
from drkernel.judge.trusted.spent import spent
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, KernelTime, Task

_USUAL_BYTES, _MOST_PATIENCE = 2**19, 16.0
"""Operators of most small tasks move less; those of networks whose images cannot be made smaller, up to 200 times as
much."""
_OF_TILES = 2.0
"""Tiles of products have 16 rows, columns and terms at least, also where a small task has fewer."""


def _patience(prepared: PreparedTask) -> float:
    """See there: by the bytes that the reference's operators move, and whether they multiply."""
    rows = [cost.trace.rows for cost in prepared.reference_costs.values()]
    moved = max(sum(row.bytes_total for row in each) for each in rows)
    least = _OF_TILES if any(row.flops for each in rows for row in each) else 1.0
    return min(max(least, moved / _USUAL_BYTES), _MOST_PATIENCE)


class SimulatedDevice:
    """A modelled GPU (`devices.base.Device`). `aten.install` must have been called in this process.

    Args:
        gpu: the GPU whose times are modelled.
        secret: hidden shapes derive from it.
        timed_shapes: shapes at which submissions are timed, the published one included.
        start: a fresh runner, in which a submission says how many programs it launches at full size. Without it, small
            grids tell.
    """

    policy = ExamPolicy(
        budget_factor=3.0, repeat_cases=5, lean_cases=False, near_repeat_in_fp64=True, fresh_last_case=True
    )

    def __init__(self, gpu: Gpu, secret: bytes, timed_shapes: int = 1, start: Callable[[], Process] | None = None):
        self._gpu, self._secret, self._timed_shapes, self._start = gpu, secret, timed_shapes, start

    def prepare(self, task: Task) -> PreparedTask:
        """Prepares a task at small sizes: at the first of several at which trivial outputs would not pass for right.

        Raises:
            DrKernelError: the reference fails, or is too large to shrink.
        """
        fitted = shrink.fit(task)
        if task.small is not None:
            return self._prepared(fitted)
        first, problem = None, None
        for small in itertools.chain([fitted], shrink.others(fitted)):
            try:
                prepared = self._prepared(small)
            except DrKernelError as error:
                problem = problem or error
                continue
            if not prepared.degenerate:
                return prepared
            first = first or prepared
        if first is None:
            raise problem or DrKernelError(f"task {task.id}: it cannot be prepared at any small size")
        return first

    def _prepared(self, task: Task) -> PreparedTask:
        reference = Reference(task, task.small)
        published, gpu = Reference(task), for_precision(self._gpu, task.precision)
        cost_model = Roofline(gpu, scale_of(task))
        prepared = prepare.prepare(reference, reference, self._secret, cost_model, aten.record, published)
        prepared.patience = _patience(prepared)
        seeds = Seeds(self._secret, task.digest)
        with spent("resized"):
            given = reference, reference, prepared.hidden, seeds("resized"), prepared.masked
            prepared.resized = resized.references(*given)
        with spent("long shapes"):
            seed = seeds("long")
            names = prepare.names_that_size_inputs(task, reference, seed)
            long = long_shapes.references(task, reference, published, names, seed)
            prepared.long = [*long, *long_shapes.beside(task, reference, long, names, seed)]
        if self._timed_shapes > 1:
            at = lambda sizes: Roofline(gpu, scale_of(task, sizes.run, sizes.full))
            others = prepared, reference, published, self._secret, self._timed_shapes - 1, at, aten.record
            prepared.timed, prepared.dropped = timed_shapes.prepared_elsewhere(*others)
        return prepared

    def measure(self, prepared: PreparedTask, submission: Submission) -> Measurement:
        """Models the times of one forward of each side, from what it was seen to do."""
        cost = prepared.reference_costs[submission.case.plan.train]
        reference = cost.profile()
        trace = submission.trace
        if self._start:
            dry = DryRuns(prepared, submission, self._start)
            trace = with_full_grids(prepared, submission, dry)
            if not prepared.sizes:
                self._expect_right_at_full_size(cost, submission, trace, dry)
        with reading("a trace"):
            ours = self._priced(prepared, cost, submission, trace)
        reference_us, submission_us = (sum(row.microseconds for row in rows) for rows in (reference, ours))
        speedup = reference_us / submission_us if submission_us else 0.0
        limits = LIMITS[self._gpu.sheet]
        share = roofline(cost.least, limits, prepared.task.precision, submission_us)
        evidence: dict[str, Any] = {"roofline": share} | ({"full_size": trace.unknown} if trace.unknown else {})
        return Measurement(speedup, reference_us, submission_us, reference, ours, evidence=evidence)

    def _expect_right_at_full_size(
        self, cost: ReferenceCost, submission: Submission, trace: OpTrace, dry: DryRuns
    ) -> None:
        """Expects of the dry runs what must be so whatever the data are.

        Raises:
            VerdictReached, Failed: it is not.
        """
        runs = dry.under_answers() if trace.read else [trace.full]
        if trace.read != "numbers" and not full_size.reads_numbers(runs):
            full_size.expect_no_error(runs, dry.under_mixed_answers())
        full_size.expect_a_launch(runs, submission)
        if cost.least is not None and not submission.case.expected.aliases:
            full_size.expect_all_is_written(runs, cost.least.written, submission.written)

    def _priced(
        self, prepared: PreparedTask, cost: ReferenceCost, submission: Submission, trace: OpTrace
    ) -> tuple[KernelTime, ...]:
        """The times of what the submission was seen to do, raised to the least that it can have taken.

        What is clearly too little to be true stays so, and is refused by `attribution.implausible`. Not so where masks,
        lengths or indices among the inputs may say that others need not be read.
        """
        task, case, model = prepared.task, submission.case, cost.cost_model
        assert isinstance(model, Roofline)
        scale = model.scale
        times = model.kernel_times(trace, floor.products_by_hand(cost.trace, trace, scale))
        inputs, outputs = (floor.tensors(leaves(tree)) for tree in (case.inputs, case.expected.rounded))
        selected = any(not tensor.is_floating_point() for tensor in inputs)
        if attribution.too_little(cost, sum(time.microseconds for time in times)) and not selected:
            return times
        read = inputs_read(case.inputs, cost.least)
        least = floor.least_us(cost.trace, trace, self._gpu, scale, task.precision, read, outputs)
        sheet = floor.sheet_us(cost.trace, cost.least, LIMITS[self._gpu.sheet], scale, task.precision)
        return floor.raised(times, max(least, sheet, cost.min_time_us if selected else 0.0))

    def pause(self) -> float:
        """There is nothing to share."""
        return 0.0
