"""How far each element of an output may be off, from the errors of its row and of its column.

Elements of a row share a bound, since an honest error is an absolute one there: a difference, a long sum. But a row may
hold unlike things: a frame's energy behind its embedding, scores beside masked ones. The errors of the large ones grant
nothing to the others. So the errors of usual elements bound usual elements, and no element may err by more, beside its
row, than elements of its column do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

UNLIKE = 32.0
"""An element that is larger than the geometric mean of its row by this factor is no usual one."""
MIN_ROW, _ALONE, _FEW = 16, 2**16, 256
"""Rows shorter than MIN_ROW do not share a bound (`table_of`). Outputs of at most _ALONE elements have one bound per
element. Fewer than _FEW elements have few errors."""
_NOTHING = 1e-9
"""Beside its row, what is smaller counts as zero, which no mean is made of."""
_SHARE_FACTOR = 2.0
"""How many times the largest share that its column has of a row's error, or of a row's size, an element may have."""
_SAMPLES = 16
"""A column's share is the largest of at least so many errors: of neighbouring columns, where there are fewer rows."""
_TINY = 1e-300
_CHUNK = 2**22
"""Elements that are looked at together."""


def table_of(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns, where the elements of a row are alike, so that they share a tolerance.

    Rows are those of the last dimension. Where that is short or the only one, elements stand for rows of the inputs,
    and each is one of its own; where there are too many of these, rows are those of the first dimension.
    """
    size = math.prod(shape)
    if stands_alone(shape):
        return size, 1
    wide = len(shape) > 1 and shape[-1] >= MIN_ROW
    columns = shape[-1] if wide else size // shape[0] if len(shape) > 1 and size >= MIN_ROW * shape[0] > 0 else size
    return size // max(1, columns), columns


def together(table: tuple[int, int]) -> tuple[int, int]:
    """The table in which elements that are rows of their own are one row."""
    return (1, table[0]) if table[1] == 1 else table


def stands_alone(shape: Sequence[int]) -> bool:
    """Whether each element of an output has a tolerance of its own."""
    return math.prod(shape) <= _ALONE and not (len(shape) > 1 and shape[-1] >= MIN_ROW)


def is_few(output: Any) -> bool:
    """Whether bounds come from few errors: those of one element, or of few. They need several runs with noise."""
    return not isinstance(output, Tensor) or output.numel() < _FEW or stands_alone(output.shape)


@dataclass(frozen=True)
class Rows:
    """What bounds the elements of each row, fp64 [R]."""

    error: Tensor
    """The largest honest error."""
    size: Tensor
    """The root mean square."""

    def settled(self, nothing: float) -> Rows:
        """With sizes of at least `nothing`; a row whose own errors are small by chance may have what rows of its size
        usually have."""
        size = self.size.clamp_min(nothing)
        usual = size * (self.error / size.clamp_min(_TINY)).median() if len(size) else size
        return Rows(torch.maximum(self.error, usual), size)


def element_bounds(
    exact: Tensor, others: Sequence[Tensor], factor: float, least: float, nothing: float, period: int
) -> Tensor:
    """The bounds of all elements, fp64 [R, C].

    Args:
        exact: fp64 [R, C].
        others: outputs with honest errors, floating [R, C].
        factor: how many times the largest error an element may have.
        least: an error beside the root mean square of a row that every element may have so many times.
        nothing: a size that is nothing beside the whole output.
        period: columns that are so far apart, or a multiple of it, are alike: the last dimension, where it is short.
    """
    limit, *rest = (torch.cat(part) for part in zip(*_rows(exact, others), strict=True))
    of_usual, of_all = (Rows(*rest[k : k + 2]).settled(nothing) for k in (0, 2))
    rows = lambda part, size: (
        torch.where(size <= limit[part, None], one[part, None], other[part, None])
        for one, other in ((of_usual.error, of_all.error), (of_usual.size, of_all.size))
    )
    errors, sizes = exact.new_zeros(exact.shape[1]), exact.new_zeros(exact.shape[1])
    for part, size, error in _parts(exact, others):
        row_error, row_size = rows(part, size)
        errors = torch.maximum(errors, (error / row_error.clamp_min(_TINY)).amax(0))
        sizes = torch.maximum(sizes, (size / row_size.clamp_min(_TINY)).amax(0))
    errors, sizes = (_smoothed(s, len(exact), period).mul(_SHARE_FACTOR).clamp_max_(1.0) for s in (errors, sizes))
    bounds = torch.empty_like(exact)
    for part, size, _ in _parts(exact, ()):
        row_error, row_size = rows(part, size)
        bounds[part] = factor * torch.maximum(row_error * errors, least * row_size * sizes)
    return bounds


def _rows(exact: Tensor, others: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Of some rows: up to which size elements are usual, and largest error and root mean square of these and of all."""
    for _, size, error in _parts(exact, others):
        rms = size.square().mean(1, keepdim=True).sqrt()
        counts = size > _NOTHING * rms
        logarithms = torch.where(counts, size, 1.0).log().sum(1) / counts.sum(1).clamp_min(1)
        limit = UNLIKE * logarithms.exp()
        is_usual = size <= limit[:, None]
        number = is_usual.sum(1).clamp_min(1)
        square = torch.where(is_usual, size, 0.0).square().sum(1)
        yield limit, torch.where(is_usual, error, 0.0).amax(1), (square / number).sqrt(), error.amax(1), rms[:, 0]


def _parts(exact: Tensor, others: Sequence[Tensor]) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Some rows at a time: where they are, the size of each element, and the largest error that it has in any output.
    What is not finite has none."""
    rows = max(1, _CHUNK // max(1, exact.shape[1]))
    for first in range(0, len(exact), rows):
        part = slice(first, first + rows)
        right = exact[part]
        size, error = torch.where(right.isfinite(), right.abs(), 0.0), torch.zeros_like(right)
        for other in others:
            found = (other[part].double() - right).abs()
            error = torch.maximum(error, torch.nan_to_num(found, nan=0.0, posinf=0.0))
        yield part, size, error


def _smoothed(share: Tensor, rows: int, period: int) -> Tensor:
    """Shares [C], each the largest of at least `_SAMPLES` errors if there are so many."""
    together = math.ceil(_SAMPLES / rows)
    if together == 1:
        return share
    steps = math.ceil(len(share) / period)
    padded = torch.nn.functional.pad(share, (0, -(-steps // together) * together * period - len(share)))
    groups = padded.view(-1, together, period)
    return groups.amax(1, keepdim=True).expand_as(groups).reshape(-1)[: len(share)]
