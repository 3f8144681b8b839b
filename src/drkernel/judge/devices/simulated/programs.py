"""How many programs of a kernel a small grid stands for at full size."""

from __future__ import annotations

import math
from dataclasses import dataclass

from drkernel.judge.boundary.op_trace import WORK, Grid, Row
from drkernel.judge.devices.simulated.rescale import Scale

_MOSTLY = 0.5
"""The proportion of a kernel's work that programs of the dry run show, above which all of them share it. Of so many
times more, some of these programs do the others' part."""
_FAR_MORE = 2.0
"""So many times the programs of another launch are far more."""
SHARED = 0.5
"""Of the largest tensor, the part that programs without data have to move: the last one of a row has less to do."""


def grids(row: Row) -> list[Grid]:
    """The launches of a kernel; as one kind where they are not told apart."""
    if row.grids:
        return row.grids
    calls = max(row.calls, 1)
    stored = max((t.numel for t in row.tensors if t.stored), default=1)
    loops = max((t.unique for t in row.tensors), default=0) > 4 * row.block * row.programs
    return [Grid(row.programs // calls, stored, loops, calls)]


@dataclass(frozen=True)
class Programs:
    """How many programs there are per launch at full size, at least 1 each."""

    fewest: float
    """That the small grids may stand for."""
    accesses: float
    """That load and store at a time, if all did as much as the busiest one; no more than the submission says."""
    lanes: float
    """The same by how much they load and store."""
    operations: float
    """The same by how much they compute."""


def programs(row: Row, scale: Scale, grown: tuple[float, float, float] = (math.inf, math.inf, math.inf)) -> Programs:
    """The programs of a kernel. `grown`: what they do at full size, by WORK, as it grows with the data."""
    several = row.full_grid > 1
    tile, once = (row.tile if several else 0), row.loop_free and row.full_grid != 1
    read = _read(row, scale) if once else 0.0
    found = [(grid, grown_grid(grid, row.block, tile, scale, read, row.full_grid)) for grid in grids(row)]
    launches = sum(grid.launches for grid in grids(row))
    fewest = sum(grid.launches / launches * fewest for grid, (fewest, _) in found)
    shown = row.full_accesses, row.full_lanes, row.full_arithmetic + row.full_flops
    told = row.full_grids or [row.full_grid if len(found) == 1 and row.full_grid else math.inf] * len(found)
    at_work, mosts = [], [most for _, (_, most) in found]
    for kind in range(len(WORK)):
        is_even = _is_even(grids(row), kind, grown[kind], shown[kind])
        even = [1.0 if is_even else grid.uneven[kind] for grid, _ in found]
        most = [_at_work(*facts) for facts in zip([grid for grid, _ in found], mosts, told, even, strict=True)]
        together = _together(grids(row), most, kind, told, scale, row.loop_free)
        at_work.append(min(together, row.full_grid or math.inf))
    return Programs(fewest, *at_work)


def shares_the_data(row: Row, scale: Scale) -> bool:
    """Whether the programs of the full grid go through the data together, as each of those that ran without data says:
    then there are as many, which a small grid need not tell. Not of products, whose programs share tiles; nor where
    launches differ, one program of the small run does far more than others, or some are idle. Where one does everything
    there, its source must show that all do the same steps."""
    [grid, *others] = grids(row)
    alone = grid.programs <= 1 and not row.even
    uneven = others or alone or grid.idle or grid.share or max(grid.uneven) > 1
    largest = max((t.unique * scale.of_tensor(t.numel) for t in row.tensors), default=0.0)
    return not (row.flops or uneven) and row.full_moved >= SHARED * largest > 0


def _at_work(grid: Grid, most: float, told: float, uneven: float) -> float:
    """Of so many programs at full size, but no more than are `told`, those that work; as if all did as much as the
    busiest one."""
    working = max(1.0, min(most * (1 - grid.idle / max(grid.programs, 1)), told) / uneven)
    return min(working, 1 / grid.share) if grid.share else working


def _is_even(grids: list[Grid], kind: int, grown: float, shown: float) -> bool:
    """Whether some of the full-size programs show that each does its part of what the busiest ones do in the small run.
    Their work is uneven then since its data are small. What the others do there is no part of it."""
    work = sum(grid.launches * grid.work[kind] for grid in grids)
    light = sum(grid.launches * grid.light[kind] for grid in grids) / work if work else 0.0
    return shown - light * grown > _MOSTLY * (1 - light) * grown and shown < grown / _MOSTLY


def _together(
    grids: list[Grid], programs: list[float], kind: int, told: list[float], scale: Scale, is_fixed: bool
) -> float:
    """How many programs work at a time over all launches, of which each has so many. A launch counts by how much it
    does: one of many programs that do little does not share the work of another one, before or behind it.

    What it does grows as the data that it goes through, where the programs of each launch are told. Launches of far
    more programs than another one has grow no more than the number of their programs, and so do all launches where a
    program's work is the same at any size (`is_fixed`).
    """
    work = [grid.launches * grid.work[kind] for grid in grids]
    if len(grids) > 1 and all(math.isfinite(number) for number in told):
        grown = [scale.of_tensor(grid.touched) for grid in grids]
        most = [number / max(grid.programs, 1) for grid, number in zip(grids, told, strict=True)]
        few = [number <= _FAR_MORE * min(programs) and not is_fixed for number in programs]
        grown = [own if is_few else min(own, limit) for own, limit, is_few in zip(grown, most, few, strict=True)]
        work = [part * max(1.0, growth) for part, growth in zip(work, grown, strict=True)]
    if not sum(work):
        work = [float(grid.launches) for grid in grids]
    return sum(work) / sum(part / at_work for part, at_work in zip(work, programs, strict=True))


def _read(row: Row, scale: Scale) -> float:
    """Elements of a tensor at full size, for each access of a program: of what none reads more than a block at once."""
    elements = [scale.of_tensor(t.numel) * min(t.unique // 2, t.numel) for t in row.tensors]
    return max(elements, default=0.0) * max(row.programs, 1) / max(row.accesses, 1)


def grown_grid(
    grid: Grid, block: int, tile: int, scale: Scale, read: float = 0.0, told: float = 0.0
) -> tuple[float, float]:
    """The fewest and the most programs that a small grid may stand for.

    A grid grows like the dimensions it equals (one program per row), or else like the tensor that it stores (one
    program per block). One program stays one if it loops or stores no more at full size; else its block was large
    enough for all of the small tensor. Where programs store a block each, and a block is no row of anything, the grid
    equals a dimension by chance.

    Args:
        tile: of a product, where more than one program is known to be launched at full size; else 0.
        read: see `_read`, where no program does more work, whatever the sizes of its tensors, so that there are more,
            unless one is known to be launched; else 0.
        told: how many are known to be launched at full size; 0 where that is not known. It decides where several
            dimensions are as large as the grid.
    """
    growth = scale.of_tensor(grid.stored)
    if grid.programs <= 1:
        single = growth == 1 or (grid.loops and not read) or not block
        blocks = 1.0 if single else max(1.0, grid.stored * growth / block)
        blocks = max(blocks, read / block) if block else blocks
        blocks = max(blocks, grid.stored * growth / tile) if tile else blocks
        return blocks, blocks
    blocks = grid.programs * growth
    if block and grid.programs == math.ceil(grid.stored / block) and block not in scale.extents:
        return blocks, blocks
    rows = grid.programs * scale.extents.get(grid.programs, growth)
    if told / grid.programs in scale.ways.get(grid.programs, ()):
        rows = told
    return min(rows, blocks), max(rows, blocks)
