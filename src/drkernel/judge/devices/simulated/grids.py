"""How many programs a submission launches at the sizes that count, and how often. Kernels run at small sizes alone.

A small grid does not tell whether it grows with the data, nor a loop around launches. So the host's part of the
submission runs on tensors of the full sizes that have no data, and its launches and calls are counted.

That happens in a process of its own: what a submission keeps of such tensors, or how it fails, must not change what its
other calls do.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from typing import Any

from drkernel.judge.boundary.framing import DeadlineExceeded, PeerClosed
from drkernel.judge.boundary.op_trace import OpTrace, Row
from drkernel.judge.boundary.shared_tensors import NotSerializable
from drkernel.judge.boundary.zygote import Process
from drkernel.judge.devices.base import Submission
from drkernel.judge.devices.simulated import loop_free
from drkernel.judge.devices.simulated.rescale import calls
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.runner_client import Failed, RunnerClient
from drkernel.judge.trusted.without_data import on_meta
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError

_NO_ANSWER = (Failed, DeadlineExceeded, PeerClosed, NotSerializable, DrKernelError)
"""Where something needs data, or takes too long: right code may do so."""


def with_full_grids(prepared: PreparedTask, submission: Submission, start: Callable[[], Process]) -> OpTrace:
    """The trace, whose rows know their full grids and calls where the submission runs without data.

    Args:
        start: a runner that has not been asked anything yet.
    """
    try:
        with on_meta():
            reference = Reference(prepared.task, prepared.sizes)
            init, inputs = list(reference.init_args()), reference.inputs(0)
        full = _launched(prepared, submission, start, init, inputs)
    except _NO_ANSWER:
        return submission.trace
    simple = loop_free.kernels(submission.written)
    return joined(submission.trace, full, submission.source != submission.written, simple)


def joined(trace: OpTrace, full: OpTrace, is_smaller: bool, simple: Collection[str] = ()) -> OpTrace:
    """The trace, which knows what the dry run `full` tells.

    What is called less often there than at the small size is taken for not known: a submission can tell a dry run.

    Args:
        is_smaller: see Row.
        simple: names of the kernels that have no loop, see `loop_free`.
    """
    grids = {row.site: row.programs / row.calls for row in full.rows if row.triton and row.calls}
    largest = {row.site: max(t.numel for t in row.tensors) for row in full.rows if row.triton and row.tensors}
    before, after = calls(trace), calls(full)
    at_full = {row.site: row for row in full.rows if row.triton}
    rows = [
        dataclasses.replace(
            with_work_of(without_masked_lanes(row, at_full.get(row.site)), at_full.get(row.site)),
            is_smaller=is_smaller,
            loop_free=row.site.rpartition(":")[0] in simple,
            full_grid=grids.get(row.site, 0.0) if row.triton else 0.0,
            full_largest=largest.get(row.site, 0.0) if row.triton else 0.0,
            full_calls=row.calls * after[row.site] / before[row.site]
            if after[row.site] >= before[row.site] > 0
            else 0.0,
        )
        for row in trace.rows
    ]
    return OpTrace(rows, OpTrace(list(map(_launches, full.rows))))


def with_work_of(row: Row, full: Row | None) -> Row:
    """The row, which knows what its programs do at full size as far as some of them tell: those without data may do
    less."""
    if full is None or not row.triton:
        return row
    return dataclasses.replace(row, full_arithmetic=full.arithmetic, full_flops=full.flops)


def _launches(row: Row) -> Row:
    """The row without what its programs do: of a kernel that the small run does not have, launches have a price."""
    return dataclasses.replace(row, arithmetic=0.0, dense_arithmetic=0.0, flops=0.0, dense_flops=0.0)


def without_masked_lanes(row: Row, full: Row | None) -> Row:
    """The row, of which no more lanes count as masked than are not at full size: a small run masks lanes since its data
    are small, but who masks lanes at any size has them executed all the same."""
    if full is None or not row.triton:
        return row
    return dataclasses.replace(
        row,
        arithmetic=_used(row.arithmetic, row.dense_arithmetic, full.arithmetic, full.dense_arithmetic),
        flops=_used(row.flops, row.dense_flops, full.flops, full.dense_flops),
    )


def _used(count: float, dense: float, full_count: float, full_dense: float) -> float:
    """The count where those lanes are left out that are masked in the small run alone."""
    return max(count, min(dense, count * full_dense / full_count)) if full_count > 0 else count


def _launched(
    prepared: PreparedTask, submission: Submission, start: Callable[[], Process], init: list, inputs: Any
) -> OpTrace:
    """The launches of a forward without data, within the time that the submission has left."""
    process = start()
    try:
        client = RunnerClient(process, submission.client.deadline() - time.monotonic(), budget_factor=1.0)
        client.load(submission.written, prepared.task.answer_name, prepared.task.precision)
        return client.dry_run(init, inputs, submission.case.plan.train, submission.seeds("programs"))
    finally:
        process.end()
