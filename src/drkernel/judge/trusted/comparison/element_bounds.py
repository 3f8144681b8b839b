"""How far each element of an output may be off, from the errors of its row and of its column.

Elements of a row share a bound, since an honest error is an absolute one there: a difference, a long sum. But a row may
hold unlike things: a frame's energy behind its embedding, scores beside masked ones. The errors of the large ones grant
nothing to the others. So the errors of usual elements bound usual elements, and no element may err by more, beside its
row, than elements of its column do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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
_CHUNK, _KEPT = 2**22, 2**26
"""Elements that are looked at together; of so many at most, sizes and errors are kept until there are bounds."""


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
    found: list[tuple[Tensor, ...]] = []

    def described() -> Iterator[tuple[slice, _Elements]]:
        for part, elements in _parts(exact, others):
            found.append(elements.by_row())
            yield part, elements

    kept = list(described()) if exact.numel() <= _KEPT else None
    if kept is None:
        for _ in described():  # one part after the other, and once more below
            pass
    limit, *rest = (torch.cat(part) for part in zip(*found, strict=True))
    of_usual, of_all = (Rows(*rest[k : k + 2]).settled(nothing) for k in (0, 2))

    def by_element(is_usual: Tensor, part: slice, change: Callable[[Tensor], Tensor], name: str) -> Tensor:
        one, other = (change(getattr(rows, name))[part, None] for rows in (of_usual, of_all))
        return torch.where(is_usual, one, other)

    shares = {name: exact.new_zeros(exact.shape[1]) for name in ("error", "size")}
    for part, elements in kept or _parts(exact, others):
        is_usual = elements.size <= limit[part, None]
        for name, share in shares.items():
            beside = by_element(is_usual, part, lambda rows: rows.clamp_min(_TINY), name)
            torch.maximum(share, torch.div(getattr(elements, name), beside, out=beside).amax(0), out=share)
    errors, sizes = (_smoothed(s, len(exact), period).mul(_SHARE_FACTOR).clamp_max_(1.0) for s in shares.values())
    bounds = torch.empty_like(exact)
    for part, elements in kept or _parts(exact, ()):
        is_usual = elements.size <= limit[part, None]
        error = by_element(is_usual, part, lambda rows: rows, "error").mul_(errors)
        floor = by_element(is_usual, part, lambda rows: least * rows, "size").mul_(sizes)
        torch.mul(torch.maximum(error, floor, out=error), factor, out=bounds[part])
    return bounds


@dataclass(frozen=True)
class _Elements:
    """Those of some rows [r, C]. What is not finite has the size zero, and no error."""

    size: Tensor
    error: Tensor
    """The largest that an element has in any output."""

    def by_row(self) -> tuple[Tensor, ...]:
        """Up to which size elements are usual, and largest error and root mean square of these and of all."""
        squares = self.size.square()
        rms = squares.mean(1, keepdim=True).sqrt()
        counts = self.size > _NOTHING * rms
        logarithms = torch.where(counts, self.size, 1.0).log_().sum(1) / counts.sum(1).clamp_min(1)
        limit = UNLIKE * logarithms.exp()
        is_usual = self.size <= limit[:, None]
        number = is_usual.sum(1).clamp_min(1)
        square = squares.mul_(is_usual).sum(1)
        return limit, (self.error * is_usual).amax(1), (square / number).sqrt(), self.error.amax(1), rms[:, 0]


def _parts(exact: Tensor, others: Sequence[Tensor]) -> Iterator[tuple[slice, _Elements]]:
    """Some rows at a time: where they are, and their elements."""
    rows = max(1, _CHUNK // max(1, exact.shape[1]))
    for first in range(0, len(exact), rows):
        part = slice(first, first + rows)
        right = exact[part]
        size, error = right.abs().nan_to_num_(nan=0.0, posinf=0.0), None
        for other in others:
            found = torch.sub(other[part], right).abs_().nan_to_num_(nan=0.0, posinf=0.0)
            error = found if error is None else torch.maximum(error, found, out=error)
        yield part, _Elements(size, size if error is None else error)


def _smoothed(share: Tensor, rows: int, period: int) -> Tensor:
    """Shares [C], each the largest of at least `_SAMPLES` errors if there are so many."""
    together = math.ceil(_SAMPLES / rows)
    if together == 1:
        return share
    steps = math.ceil(len(share) / period)
    padded = torch.nn.functional.pad(share, (0, -(-steps // together) * together * period - len(share)))
    groups = padded.view(-1, together, period)
    return groups.amax(1, keepdim=True).expand_as(groups).reshape(-1)[: len(share)]
