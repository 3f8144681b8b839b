"""How many programs of a kernel a small grid stands for at full size."""

from __future__ import annotations

import math

from drkernel.judge.boundary.op_trace import Grid, Row
from drkernel.judge.devices.simulated.rescale import Scale


def grids(row: Row) -> list[Grid]:
    """The launches of a kernel; as one kind where they are not told apart."""
    if row.grids:
        return row.grids
    calls = max(row.calls, 1)
    stored = max((t.numel for t in row.tensors if t.stored), default=1)
    loops = max((t.unique for t in row.tensors), default=0) > 4 * row.block * row.programs
    return [Grid(row.programs // calls, stored, loops, calls)]


def programs(row: Row, scale: Scale) -> tuple[float, float]:
    """Programs per launch at full size, at least 1: the fewest that the small grids may stand for, and the most that
    work at a time, of which there are no more than the submission says."""
    launches = sum(grid.launches for grid in grids(row))
    several = row.full_grid > 1
    tile, once = (row.tile if several else 0), row.loop_free and several
    read = _read(row, scale) if once else 0.0
    found = [
        (grid, grid.launches / launches, grown(grid, row.block, tile, scale, read, row.full_grid))
        for grid in grids(row)
    ]
    fewest = sum(share * fewest for _, share, (fewest, _) in found)
    most = sum(share * _at_work(grid, most) for grid, share, (_, most) in found)
    return fewest, min(most, row.full_grid or most)


def _at_work(grid: Grid, most: float) -> float:
    """Of so many programs at full size, those that work; as if all did as much as the busiest one."""
    working = max(1.0, most * (1 - grid.idle / max(grid.programs, 1)))
    return min(working, 1 / grid.share) if grid.share else working


def _read(row: Row, scale: Scale) -> float:
    """Elements of a tensor at full size, for each access of a program: of what none reads more than a block at once."""
    elements = [scale.of_tensor(t.numel) * min(t.unique // 2, t.numel) for t in row.tensors]
    return max(elements, default=0.0) * max(row.programs, 1) / max(row.accesses, 1)


def grown(grid: Grid, block: int, tile: int, scale: Scale, read: float = 0.0, told: float = 0.0) -> tuple[float, float]:
    """The fewest and the most programs that a small grid may stand for.

    A grid grows like the dimensions it equals (one program per row), or else like the tensor that it stores (one
    program per block). One program stays one if it loops or stores no more at full size; else its block was large
    enough for all of the small tensor. Where programs store a block each, and a block is no row of anything, the grid
    equals a dimension by chance.

    Args:
        tile: of a product, where more than one program is known to be launched at full size; else 0.
        read: see `_read`, where more than one is, and none does more work, whatever the sizes of its tensors; else 0.
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
