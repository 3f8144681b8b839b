"""Triton kernels for the judge's comparisons, in one pass over the data each. They run in the examiner on a GPU.

They compute what `trusted.reductions.Torch` and `trusted.rounding.Noise` compute with a dozen operators of torch.
Tensors are tables [R, C], cut into tiles. A program walks over some of the rows and columns and keeps sums in fp64. It
writes one partial result per row and one of its own, so that results are reproducible.

Nothing is compiled for a shape: sizes and addresses are not specialised. There are two tiles (for rows of at least
`_WIDE` values, and for shorter ones) and four dtypes of outputs, hence eight variants of `_statistics`, eight of
`_deviations`, four of `_differences` and so on. Sizes from 2**31 on have another type and compile further variants.
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
"""Programs of a grid at most, some four per slot of an H200. They divide the rows, and columns where rows are few."""
_FLAT, _WARPS = 1024, 8
_SEEDS = 2**62
"""Added to seeds, which then are always of 64 bits."""


def statistics(exact: Tensor, rounded: Tensor, jittered: Tensor) -> tuple[Tensor, Tensor, list[float]]:
    """How large the exact outputs are, and how far two other ways to compute them are from them.

    Args:
        exact, jittered: fp64 [R, C]; or, where only the size is asked for, as `rounded`.
        rounded: fp64, fp32, bf16 or fp16 [R, C].

    Returns:
        power: fp64 [R], the sum of squares of `exact` in each row.
        worst: fp64 [R], the largest |rounded - exact| or |jittered - exact| in each row.
        numbers: sums of squares of exact, rounded - exact and jittered - exact; the largest |exact|; how many places
            are finite in only one of rounded and exact; how many are not finite in both. One synchronisation.
        NaN and infinities count as 0 everywhere else.
    """
    power, worst, totals = _partial_statistics(exact.contiguous(), rounded.contiguous(), jittered.contiguous())
    power, worst, sums = power.sum(0), worst.amax(0), totals[1:].sum(1)
    square, largest = power.sum().view(1), totals[0].amax().view(1)
    return power, worst, torch.cat([square, sums[:2], largest, sums[2:]]).tolist()


def _partial_statistics(exact: Tensor, rounded: Tensor, jittered: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the programs of `_statistics` write."""
    tile, extents, grid = _cut(*exact.shape)
    empty = lambda *shape: torch.empty(shape, dtype=torch.float64, device=exact.device)
    power, worst, totals = empty(grid[1], len(exact)), empty(grid[1], len(exact)), empty(5, grid[0] * grid[1])
    _statistics[grid](exact, rounded, jittered, power, worst, totals, *exact.shape, *extents, *tile, num_warps=_WARPS)
    return power, worst, totals


def deviations(value: Tensor, exact: Tensor, atol: Tensor, rtol: float, factor: float = 1.0) -> list[float]:
    """How outputs differ from the exact ones.

    Args:
        value: fp64, fp32, bf16 or fp16 [R, C].
        exact: fp64 [R, C], or as `value`.
        atol: fp64 [R, C], or by row [R, 1]. An element may differ by its atol, or by |exact| * rtol if that is more ...
        factor: ... so many times.

    Returns:
        How many places are NaN or infinite in only one, or differently; how many elements differ by more than they
        may; the sum of squares of value - exact where exact is finite. One synchronisation.
    """
    value, exact, atol = value.contiguous(), exact.contiguous(), atol.contiguous()
    tile, extents, grid = _cut(*exact.shape)
    totals = torch.empty((3, grid[0] * grid[1]), dtype=torch.float64, device=exact.device)
    number = lambda given: torch.full((1,), given, dtype=torch.float64, device=exact.device)  # else it would be fp32
    sizes = *exact.shape, atol.shape[1]
    numbers = number(rtol), number(factor)
    _deviations[grid](value, exact, atol, *numbers, totals, *sizes, *extents, *tile, num_warps=_WARPS)
    return totals.sum(1).tolist()


def differences(right: Tensor, got: Tensor) -> list[float]:
    """How far two tensors [n] of one floating dtype are apart.

    Returns:
        The largest |got - right|, where NaN equals NaN and else is infinitely far; the largest |right|; the sums of
        squares of both. NaN and infinities in `right` count as 0 in its own. One synchronisation.
    """
    right, got = right.contiguous(), got.contiguous()
    span, programs = _cut_flat(len(right))
    totals = torch.empty((4, programs), dtype=torch.float64, device=right.device)
    _differences[(programs,)](right, got, totals, len(right), span, _FLAT, num_warps=_WARPS)
    return torch.cat([totals[:2].amax(1), totals[2:].sum(1)]).tolist()


def disturb(values: Tensor, factor: float, noise: tuple[float, float], seed: int, rows: bool | None) -> Tensor:
    """Adds noise in place, as `trusted.rounding.Noise` does. No synchronisation, and no memory but for the rows.

    Args:
        values: contiguous fp32 or fp64 [R, C].
        factor: the standard deviation of the noise beside the size of an element.
        noise: (least, more): numbers of standard deviation one have sizes of least to least + more.
        seed: from 0 to 2**62. The same gives the same noise.
        rows: whether an element's size is at least the root mean square of its row; False: that of all values; None:
            only its own size counts. Infinities and NaN stay, and have no size.

    Returns:
        The values.
    """
    usual, columns = values, values.numel()
    if rows is not None:
        power = _partial_statistics(values, values, values)[0].sum(0)
        columns = values.shape[1] if rows else columns
        usual = ((power if rows else power.sum().view(1)) / columns).sqrt_()
        usual = usual.to(torch.promote_types(values.dtype, torch.float32))
    given = values, usual, values.numel(), columns, factor, seed + _SEEDS
    grid = (triton.cdiv(values.numel(), 4 * _FLAT),)
    _disturb[grid](*given, *noise, rows is not None, _FLAT, num_warps=_WARPS)
    return values


def all_whole(values: Tensor, below: float) -> Tensor:
    """Whether all values [n] are whole numbers of a size below a limit: bool [], on the device."""
    span, programs = _cut_flat(len(values))
    found = torch.empty(programs, dtype=torch.int32, device=values.device)
    _others[(programs,)](values, found, len(values), span, below, _FLAT, num_warps=_WARPS)
    return found.sum() == 0


def _cut_flat(n: int) -> tuple[int, int]:
    """The values of one program, and how many programs there are."""
    span = _FLAT * triton.cdiv(triton.cdiv(n, _FLAT), _PROGRAMS)
    return span, triton.cdiv(n, span)


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
def _range(axis: tl.constexpr, size, most):
    """Where this program's rows (or columns) begin and end."""
    begin = tl.program_id(axis).to(tl.int64) * size
    return begin, tl.minimum(begin + size, most)


@triton.jit
def _own_totals(totals):
    """Where this program's totals go, and the distance between two of them."""
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


@_jit("exact_p", "rounded_p", "jittered_p", "power_p", "worst_p", "totals_p", sizes=("rows", "columns", "tall", "span"))
def _statistics(
    exact_p,
    rounded_p,
    jittered_p,
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
    top, bottom = _range(0, tall, rows)
    begin, end = _range(1, span, columns)
    partial = tl.program_id(1).to(tl.int64) * rows
    largest = tl.zeros((ROWS, COLUMNS), tl.float64)
    rounded_square, jittered_square = largest, largest
    odd = tl.zeros((ROWS, COLUMNS), tl.int32)
    special = odd
    for first in range(top, bottom, ROWS):
        row = first + tl.arange(0, ROWS)
        power = tl.zeros((ROWS, COLUMNS), tl.float64)
        worst = power
        for start in range(begin, end, COLUMNS):
            place, inside = _tile(row, start, rows, columns, COLUMNS)
            exact = tl.load(exact_p + place, mask=inside, other=0.0).to(tl.float64)
            rounded = tl.load(rounded_p + place, mask=inside, other=0.0).to(tl.float64)
            jittered = tl.load(jittered_p + place, mask=inside, other=0.0).to(tl.float64)
            finite, rounded_finite = _is_finite(exact), _is_finite(rounded)
            size = tl.where(finite, tl.abs(exact), 0.0)
            rounded_error, jittered_error = tl.abs(rounded - exact), tl.abs(jittered - exact)
            rounded_error = tl.where(_is_finite(rounded_error), rounded_error, 0.0)
            jittered_error = tl.where(_is_finite(jittered_error), jittered_error, 0.0)
            power += size * size
            worst = tl.maximum(worst, tl.maximum(rounded_error, jittered_error))
            rounded_square += rounded_error * rounded_error
            jittered_square += jittered_error * jittered_error
            largest = tl.maximum(largest, size)
            odd += (finite ^ rounded_finite).to(tl.int32)
            special += 1 - (finite & rounded_finite).to(tl.int32)
        tl.store(power_p + partial + row, tl.sum(power, 1), mask=row < rows)
        tl.store(worst_p + partial + row, tl.max(worst, 1), mask=row < rows)
    own, programs = _own_totals(totals_p)
    tl.store(own, tl.max(tl.max(largest, 1), 0))
    tl.store(own + programs, _total(rounded_square))
    tl.store(own + 2 * programs, _total(jittered_square))
    tl.store(own + 3 * programs, _total(odd))
    tl.store(own + 4 * programs, _total(special))


@_jit(
    *("value_p", "exact_p", "atol_p", "rtol_p", "factor_p", "totals_p"),
    sizes=("rows", "columns", "bounds", "tall", "span"),
)
def _deviations(
    value_p,
    exact_p,
    atol_p,
    rtol_p,
    factor_p,
    totals_p,
    rows,
    columns,
    bounds,
    tall,
    span,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    top, bottom = _range(0, tall, rows)
    begin, end = _range(1, span, columns)
    rtol, factor = tl.load(rtol_p), tl.load(factor_p)
    square = tl.zeros((ROWS, COLUMNS), tl.float64)
    special = tl.zeros((ROWS, COLUMNS), tl.int32)
    beyond = special
    for first in range(top, bottom, ROWS):
        row = first + tl.arange(0, ROWS)
        for start in range(begin, end, COLUMNS):
            place, inside = _tile(row, start, rows, columns, COLUMNS)
            atol = tl.load(atol_p + tl.where(bounds > 1, place, row[:, None]), mask=inside, other=0.0)
            exact = tl.load(exact_p + place, mask=inside, other=0.0).to(tl.float64)
            value = tl.load(value_p + place, mask=inside, other=0.0).to(tl.float64)
            finite = _is_finite(exact)
            same = (value == exact) | ((value != value) & (exact != exact))
            error = tl.where(finite, tl.abs(value - exact), 0.0)
            bound = factor * tl.maximum(atol, tl.where(finite, tl.abs(exact), 0.0) * rtol)
            special += 1 - tl.where(finite, _is_finite(value), same).to(tl.int32)
            beyond += 1 - (error <= bound).to(tl.int32)
            square += error * error
    own, programs = _own_totals(totals_p)
    tl.store(own, _total(special))
    tl.store(own + programs, _total(beyond))
    tl.store(own + 2 * programs, _total(square))


@_jit("right_p", "got_p", "totals_p", sizes=("n", "span"))
def _differences(right_p, got_p, totals_p, n, span, BLOCK: tl.constexpr):
    begin, end = _range(0, span, n)
    max_error = tl.zeros((BLOCK,), tl.float64)
    largest = max_error
    error_square, size_square = max_error, max_error
    for start in range(begin, end, BLOCK):
        place = start + tl.arange(0, BLOCK)
        right = tl.load(right_p + place, mask=place < n, other=0.0).to(tl.float64)
        got = tl.load(got_p + place, mask=place < n, other=0.0).to(tl.float64)
        same = (right == got) | ((right != right) & (got != got))
        error = tl.abs(got - right)
        error = tl.where(same, 0.0, tl.where(error == error, error, float("inf")))
        size = tl.where(_is_finite(right), tl.abs(right), 0.0)
        max_error, largest = tl.maximum(max_error, error), tl.maximum(largest, size)
        error_square += error * error
        size_square += size * size
    own, programs = _own_totals(totals_p)
    tl.store(own, tl.max(max_error, 0))
    tl.store(own + programs, tl.max(largest, 0))
    tl.store(own + 2 * programs, tl.sum(error_square, 0))
    tl.store(own + 3 * programs, tl.sum(size_square, 0))


@_jit("values_p", "usual_p", sizes=("n", "columns", "factor", "seed"))
def _disturb(
    values_p,
    usual_p,
    n,
    columns,
    factor,
    seed,
    LEAST: tl.constexpr,
    MORE: tl.constexpr,
    HAS_USUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    counter = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.program_id(0).to(tl.int64) * (4 * BLOCK) + tl.arange(0, BLOCK)
    first, second, third, fourth = tl.rand4x(seed, counter)
    _add_noise(values_p, usual_p, place, n, first, columns, factor, LEAST, MORE, HAS_USUAL)
    _add_noise(values_p, usual_p, place + BLOCK, n, second, columns, factor, LEAST, MORE, HAS_USUAL)
    _add_noise(values_p, usual_p, place + 2 * BLOCK, n, third, columns, factor, LEAST, MORE, HAS_USUAL)
    _add_noise(values_p, usual_p, place + 3 * BLOCK, n, fourth, columns, factor, LEAST, MORE, HAS_USUAL)


@triton.jit
def _add_noise(
    values_p,
    usual_p,
    place,
    n,
    uniform,
    columns,
    factor,
    LEAST: tl.constexpr,
    MORE: tl.constexpr,
    HAS_USUAL: tl.constexpr,
):
    value = tl.load(values_p + place, mask=place < n, other=0.0)
    noise = (2.0 * uniform - 1.0) * MORE
    noise += tl.where(noise < 0.0, -LEAST, LEAST)
    size = value
    if HAS_USUAL:
        usual = tl.load(usual_p + place // columns, mask=place < n, other=0.0)
        size = tl.maximum(tl.where(_is_finite(value), tl.abs(value), 0.0), usual)
    error = noise * size * factor
    tl.store(values_p + place, value + tl.where(_is_finite(error), error, 0.0), mask=place < n)


@_jit("values_p", "found_p", sizes=("n", "span", "below"))
def _others(values_p, found_p, n, span, below, BLOCK: tl.constexpr):
    begin, end = _range(0, span, n)
    others = tl.zeros((BLOCK,), tl.int32)
    for start in range(begin, end, BLOCK):
        place = start + tl.arange(0, BLOCK)
        value = tl.load(values_p + place, mask=place < n, other=0.0).to(tl.float64)
        whole = (tl.floor(value) == value) & (tl.abs(value) < below)
        others += 1 - whole.to(tl.int32)
    tl.store(found_p + tl.program_id(0), (tl.sum(others, 0) > 0).to(tl.int32))
