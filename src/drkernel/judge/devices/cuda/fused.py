"""The judge's comparisons in one pass over the data each: what compare.py says in a dozen operators of torch.

Tensors come as tables [R, C] and are cut into tiles; a program walks over its share of the rows and columns, keeps sums
in fp64 and writes one partial result per row and one of its own, so that the answer is the same every time.

Nothing is compiled for a shape: sizes and addresses are not specialised. There are two tiles (for rows of at least
`_WIDE` values, and for shorter ones) and four dtypes of the answer, hence eight variants of `_statistics`, eight of
`_deviations` and four of `_differences`; sizes from 2**31 on make others, as their type is another.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_WIDE = 1024
_TILES = {True: (1, 1024), False: (32, 32)}
"""Rows and columns of a tile, by whether rows are wide."""
_PROGRAMS = 2048
"""At most so many programs share the rows, and the columns where rows are few: some four per place on an H200."""
_FLAT, _WARPS = 1024, 8


def statistics(exact: Tensor, near: Tensor, shaken: Tensor) -> tuple[Tensor, Tensor, list[float]]:
    """How large a right answer is, and how far two other ways to compute it are from it.

    Args:
        exact, shaken: fp64 [R, C].
        near: fp64, fp32, bf16 or fp16 [R, C].

    Returns:
        power: fp64 [R], the sum of squares of `exact` in each row.
        worst: fp64 [R], the largest |near - exact| or |shaken - exact| in each row.
        numbers: sums of squares of exact, near - exact and shaken - exact; the largest |exact|; how many places are
            finite in only one of near and exact; how many are not finite in both. One synchronisation.
        NaN and infinities count as 0 everywhere else.
    """
    exact, near, shaken = exact.contiguous(), near.contiguous(), shaken.contiguous()
    tile, shares, grid = _cut(*exact.shape)
    empty = lambda *shape: torch.empty(shape, dtype=torch.float64, device=exact.device)
    power, worst, totals = empty(grid[1], len(exact)), empty(grid[1], len(exact)), empty(5, grid[0] * grid[1])
    _statistics[grid](exact, near, shaken, power, worst, totals, *exact.shape, *shares, *tile, num_warps=_WARPS)
    power, worst, sums = power.sum(0), worst.amax(0), totals[1:].sum(1)
    square, largest = power.sum().view(1), totals[0].amax().view(1)
    return power, worst, torch.cat([square, sums[:2], largest, sums[2:]]).tolist()


def deviations(value: Tensor, exact: Tensor, floor: Tensor, slope: float) -> list[float]:
    """How an answer differs from the right one.

    Args:
        value: fp64, fp32, bf16 or fp16 [R, C].
        exact: fp64 [R, C].
        floor: fp64 [R]. An element may differ by its row's floor, or by |exact| * slope if that is more.

    Returns:
        How many places are NaN or infinite in only one, or differently; how many elements differ by more than they
        may; the sum of squares of value - exact where exact is finite. One synchronisation.
    """
    value, exact = value.contiguous(), exact.contiguous()
    tile, shares, grid = _cut(*exact.shape)
    totals = torch.empty((3, grid[0] * grid[1]), dtype=torch.float64, device=exact.device)
    steep = torch.full((1,), slope, dtype=torch.float64, device=exact.device)  # a float argument would become fp32
    _deviations[grid](value, exact, floor, steep, totals, *exact.shape, *shares, *tile, num_warps=_WARPS)
    return totals.sum(1).tolist()


def differences(right: Tensor, got: Tensor) -> list[float]:
    """How far two tensors [n] of one floating dtype are apart.

    Returns:
        The largest |got - right|, where NaN equals NaN and else is infinitely far; the largest |right|; the sums of
        squares of both. NaN and infinities in `right` count as 0 in its own. One synchronisation.
    """
    right, got = right.contiguous(), got.contiguous()
    span = _FLAT * triton.cdiv(triton.cdiv(len(right), _FLAT), _PROGRAMS)
    programs = triton.cdiv(len(right), span)
    totals = torch.empty((4, programs), dtype=torch.float64, device=right.device)
    _differences[(programs,)](right, got, totals, len(right), span, _FLAT, num_warps=_WARPS)
    return torch.cat([totals[:2].amax(1), totals[2:].sum(1)]).tolist()


def _cut(rows: int, columns: int) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """The tile for a table, the rows and columns of one program, and the grid."""
    height, width = tile = _TILES[columns >= _WIDE]
    tall = height * triton.cdiv(triton.cdiv(rows, height), _PROGRAMS)
    programs = triton.cdiv(rows, tall)
    span = width * triton.cdiv(triton.cdiv(columns, width), _PROGRAMS // programs)
    return tile, (tall, span), (programs, triton.cdiv(columns, span))


def _jit(*addresses: str, sizes: tuple[str, ...]):
    return triton.jit(do_not_specialize=sizes, do_not_specialize_on_alignment=addresses)


@triton.jit
def _is_finite(x):
    return tl.abs(x) < float("inf")


@triton.jit
def _share(axis: tl.constexpr, size, most):
    """Where this program's share of the rows (or columns) begins and ends."""
    begin = tl.program_id(axis).to(tl.int64) * size
    return begin, tl.minimum(begin + size, most)


@triton.jit
def _own(totals):
    """Where this program's totals go, and how far apart they lie."""
    place = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    return totals + place, tl.num_programs(0).to(tl.int64) * tl.num_programs(1)


@triton.jit
def _tile(row, start, rows, columns, COLUMNS: tl.constexpr):
    """Where the values of a tile lie, and which of them exist."""
    column = start + tl.arange(0, COLUMNS)
    return row[:, None] * columns + column[None, :], (row < rows)[:, None] & (column < columns)[None, :]


@triton.jit
def _total(values):
    return tl.sum(tl.sum(values, 1), 0).to(tl.float64)


@_jit("exact_p", "near_p", "shaken_p", "power_p", "worst_p", "totals_p", sizes=("rows", "columns", "tall", "span"))
def _statistics(
    exact_p,
    near_p,
    shaken_p,
    power_p,
    worst_p,
    totals_p,
    rows,
    columns,
    tall,
    span,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    top, bottom = _share(0, tall, rows)
    begin, end = _share(1, span, columns)
    partial = tl.program_id(1).to(tl.int64) * rows
    largest = tl.zeros((ROWS, COLUMNS), tl.float64)
    near_square, shaken_square = largest, largest
    odd = tl.zeros((ROWS, COLUMNS), tl.int32)
    special = odd
    for first in range(top, bottom, ROWS):
        row = first + tl.arange(0, ROWS)
        power = tl.zeros((ROWS, COLUMNS), tl.float64)
        worst = power
        for start in range(begin, end, COLUMNS):
            place, inside = _tile(row, start, rows, columns, COLUMNS)
            exact = tl.load(exact_p + place, mask=inside, other=0.0)
            near = tl.load(near_p + place, mask=inside, other=0.0).to(tl.float64)
            shaken = tl.load(shaken_p + place, mask=inside, other=0.0)
            finite, near_finite = _is_finite(exact), _is_finite(near)
            size = tl.where(finite, tl.abs(exact), 0.0)
            near_error, shaken_error = tl.abs(near - exact), tl.abs(shaken - exact)
            near_error = tl.where(_is_finite(near_error), near_error, 0.0)
            shaken_error = tl.where(_is_finite(shaken_error), shaken_error, 0.0)
            power += size * size
            worst = tl.maximum(worst, tl.maximum(near_error, shaken_error))
            near_square += near_error * near_error
            shaken_square += shaken_error * shaken_error
            largest = tl.maximum(largest, size)
            odd += (finite ^ near_finite).to(tl.int32)
            special += 1 - (finite & near_finite).to(tl.int32)
        tl.store(power_p + partial + row, tl.sum(power, 1), mask=row < rows)
        tl.store(worst_p + partial + row, tl.max(worst, 1), mask=row < rows)
    own, programs = _own(totals_p)
    tl.store(own, tl.max(tl.max(largest, 1), 0))
    tl.store(own + programs, _total(near_square))
    tl.store(own + 2 * programs, _total(shaken_square))
    tl.store(own + 3 * programs, _total(odd))
    tl.store(own + 4 * programs, _total(special))


@_jit("value_p", "exact_p", "floor_p", "slope_p", "totals_p", sizes=("rows", "columns", "tall", "span"))
def _deviations(
    value_p, exact_p, floor_p, slope_p, totals_p, rows, columns, tall, span, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    top, bottom = _share(0, tall, rows)
    begin, end = _share(1, span, columns)
    slope = tl.load(slope_p)
    square = tl.zeros((ROWS, COLUMNS), tl.float64)
    special = tl.zeros((ROWS, COLUMNS), tl.int32)
    beyond = special
    for first in range(top, bottom, ROWS):
        row = first + tl.arange(0, ROWS)
        floor = tl.load(floor_p + row, mask=row < rows, other=0.0)[:, None]
        for start in range(begin, end, COLUMNS):
            place, inside = _tile(row, start, rows, columns, COLUMNS)
            exact = tl.load(exact_p + place, mask=inside, other=0.0)
            value = tl.load(value_p + place, mask=inside, other=0.0).to(tl.float64)
            finite = _is_finite(exact)
            same = (value == exact) | ((value != value) & (exact != exact))
            error = tl.where(finite, tl.abs(value - exact), 0.0)
            bound = tl.maximum(floor, tl.where(finite, tl.abs(exact), 0.0) * slope)
            special += 1 - tl.where(finite, _is_finite(value), same).to(tl.int32)
            beyond += 1 - (error <= bound).to(tl.int32)
            square += error * error
    own, programs = _own(totals_p)
    tl.store(own, _total(special))
    tl.store(own + programs, _total(beyond))
    tl.store(own + 2 * programs, _total(square))


@_jit("right_p", "got_p", "totals_p", sizes=("n", "span"))
def _differences(right_p, got_p, totals_p, n, span, BLOCK: tl.constexpr):
    begin, end = _share(0, span, n)
    most = tl.zeros((BLOCK,), tl.float64)
    largest = most
    error_square, size_square = most, most
    for start in range(begin, end, BLOCK):
        place = start + tl.arange(0, BLOCK)
        right = tl.load(right_p + place, mask=place < n, other=0.0).to(tl.float64)
        got = tl.load(got_p + place, mask=place < n, other=0.0).to(tl.float64)
        same = (right == got) | ((right != right) & (got != got))
        error = tl.abs(got - right)
        error = tl.where(same, 0.0, tl.where(error == error, error, float("inf")))
        size = tl.where(_is_finite(right), tl.abs(right), 0.0)
        most, largest = tl.maximum(most, error), tl.maximum(largest, size)
        error_square += error * error
        size_square += size * size
    own, programs = _own(totals_p)
    tl.store(own, tl.max(most, 0))
    tl.store(own + programs, tl.max(largest, 0))
    tl.store(own + 2 * programs, tl.sum(error_square, 0))
    tl.store(own + 3 * programs, tl.sum(size_square, 0))
