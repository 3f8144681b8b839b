"""How many programs a submission launches at the sizes that count, and how often. Kernels run at small sizes alone.

A small grid does not tell whether it grows with the data, nor a loop around launches. So the host's part of the
submission runs on tensors of the full sizes that have no data, and its launches and calls are counted.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Collection

from drkernel.judge.boundary.op_trace import OpTrace, Row
from drkernel.judge.devices.base import Submission
from drkernel.judge.devices.simulated import loop_free, steady
from drkernel.judge.devices.simulated.dry_runs import NO_ANSWER, DryRuns, of_published_sizes
from drkernel.judge.devices.simulated.rescale import calls
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.processes.failures import Failed, Unanswered

_COPIED = "_local_scalar_dense"
"""What copies to the host are called."""
_READING = (
    _COPIED, "nonzero", "masked_select", "bincount", "repeat_interleave", "equal", "allclose", "_unique2", "unique_dim",
    "unique_consecutive",
)  # fmt: skip
"""Operators of which the host reads a number or an answer: a value, or how many elements data choose."""
_MOST_TEXT = 300
"""Characters of why a dry run tells nothing."""


def with_full_grids(prepared: PreparedTask, submission: Submission, dry: DryRuns) -> OpTrace:
    """The trace, whose rows know their full grids and calls where the submission runs without data.

    Raises:
        Failed: no GPU would run it at the published sizes, whatever the data are, or it raises an error there.
    """
    try:
        full = dry.run()
    except NO_ANSWER as error:
        if isinstance(error, Failed) and not prepared.sizes and dry.is_of_the_sizes(error):
            raise of_published_sizes(error) from None
        read = error.read if isinstance(error, Unanswered) else ""
        why = f"{error.kind}: {error.message}" if isinstance(error, Failed) else type(error).__name__
        return dataclasses.replace(submission.trace, read=read, unknown=why[:_MOST_TEXT])
    written, is_smaller = submission.written, submission.source != submission.written
    simple, fixed = loop_free.kernels(written), loop_free.kernels(written, several=True)
    alike = steady.kernels(written, evenly=True)
    return joined(submission.trace, full, is_smaller, simple, steady.kernels(written), fixed, alike)


def joined(
    trace: OpTrace,
    full: OpTrace,
    is_smaller: bool,
    simple: Collection[str] = (),
    steps: Collection[str] = (),
    fixed: Collection[str] = (),
    alike: Collection[str] = (),
) -> OpTrace:
    """The trace, which knows what the dry run `full` tells.

    What is called less often there than at the small size is taken for not known: a submission can tell a dry run. So
    are no more programs than there where the host reads numbers back, which are others in the dry run.

    Args:
        is_smaller: see Row.
        simple: names of the kernels that have no loop, see `loop_free`.
        steps: names of those that do as many steps whatever they load, see `steady`. None is believed where the host
            reads numbers back.
        fixed: names of those that store in a loop of as many steps always, too; for known grids.
        alike: names of those of `steps` of which all programs do the same steps.
    """
    reads_back = any(row.name in _READING for row in (*trace.rows, *full.rows))
    before, after = calls(trace), calls(full)
    copied = max((t.numel for row in full.rows if row.name == _COPIED for t in row.tensors), default=0.0)
    is_even = lambda row: not reads_back and row.site.rpartition(":")[0] in alike
    rows = [
        dataclasses.replace(
            with_work_of(without_masked_lanes(row, own), own, is_even(row)),
            is_smaller=is_smaller,
            steady=not reads_back and row.site.rpartition(":")[0] in steps,
            even=is_even(row),
            warps=min(row.warps, own.warps) if own else row.warps,
            loop_free=row.site.rpartition(":")[0] in ({*simple, *fixed} if own else simple),
            full_grid=own.programs / own.calls if own and own.calls else 0.0,
            full_grids=_full_grids(row, own) if own else [],
            full_largest=max((t.numel for t in own.tensors), default=0.0) if own else copied * (row.name == _COPIED),
            full_calls=row.calls * after[row.site] / before[row.site]
            if after[row.site] >= before[row.site] > 0
            else 0.0,
        )
        for row, own in paired(trace, full, reads_back)
    ]
    return OpTrace(rows, OpTrace(list(map(_launches, full.rows))), full.read)


def _full_grids(row: Row, own: Row) -> list[float]:
    """The programs at full size of each of the row's grids, of several the fewest: launches of both are put in order,
    where there are as many. Of as many programs, those that store more are more at full size."""
    order = sorted(range(len(row.grids)), key=lambda place: (row.grids[place].programs, row.grids[place].stored))
    told = sorted(grid.programs for grid in own.grids for _ in range(min(grid.launches, row.calls + 1)))
    if len(told) != sum(grid.launches for grid in row.grids):
        return []
    programs, first = {}, 0
    for place in order:
        programs[place] = float(told[first])
        first += row.grids[place].launches
    return [programs[place] for place in range(len(row.grids))]


def paired(trace: OpTrace, full: OpTrace, guessed: bool = False) -> list[tuple[Row, Row | None]]:
    """The rows, each with that of its kernel in the dry run, if there is one. Several kernels have one site where a
    function makes them: in both runs the first belongs to the first, or the largest of all to each where their numbers
    differ.

    Args:
        guessed: the host reads numbers back, so that rows of no more programs a launch tell nothing.
    """
    before, after = _kernels_by_site(trace), _kernels_by_site(full)
    turns = {
        site: iter(rows) if len(rows) == len(before[site]) else itertools.repeat(_largest(rows))
        for site, rows in after.items()
    }
    found = [(row, next(turns[row.site]) if row.triton and row.site in turns else None) for row in trace.rows]
    no_more = lambda row, own: guessed and own.programs * row.calls <= row.programs * own.calls
    return [(row, None if own and no_more(row, own) else own) for row, own in found]


def _kernels_by_site(trace: OpTrace) -> defaultdict[str, list[Row]]:
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in trace.rows:
        if row.triton:
            found[row.site].append(row)
    return found


_COUNTS = (
    "arithmetic", "dense_arithmetic", "flops", "dense_flops", "accesses", "lanes", "exchanges", "issued", "blocks",
)  # fmt: skip
"""Fields of a row that say what its programs do."""


def _largest(rows: list[Row]) -> Row:
    """A row of one call, each of whose numbers is the largest of the rows."""
    most = {name: max(getattr(row, name) for row in rows) for name in _COUNTS}
    programs = max(row.programs // max(1, row.calls) for row in rows)
    tensors = [tensor for row in rows for tensor in row.tensors]
    return dataclasses.replace(rows[0], calls=1, programs=programs, grids=[], moved=0.0, tensors=tensors, **most)


def with_work_of(row: Row, full: Row | None, is_even: bool = False) -> Row:
    """The row, which knows what its programs do at full size as far as some of them tell: those without data may do
    less. Where all do the same steps (`is_even`), each executes all lanes, whichever are masked in it."""
    if full is None or not row.triton:
        return row
    told = {
        f"full_{name}": getattr(full, name)
        for name in ("arithmetic", "flops", "accesses", "lanes", "exchanges", "issued", "blocks", "moved")
    }
    if is_even:
        told["full_arithmetic"] = max(full.arithmetic, full.dense_arithmetic)
    return dataclasses.replace(row, **told)


def _launches(row: Row) -> Row:
    """The row without what its programs do: of a kernel that the small run does not have, launches have a price."""
    return dataclasses.replace(
        row,
        arithmetic=0.0,
        dense_arithmetic=0.0,
        flops=0.0,
        dense_flops=0.0,
        accesses=0,
        lanes=0.0,
        exchanges=0.0,
        moved=0.0,
    )


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
