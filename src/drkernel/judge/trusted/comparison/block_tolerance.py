"""Bounds for the outputs of many calls at once, as raw bytes, and for calls that are asked again on other inputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.boundary.shared_tensors import DTYPES, Slot
from drkernel.judge.trusted import reductions
from drkernel.judge.trusted.outputs import OutputTensor, alike, dtype_of, form_of, leaves, shape_of

_CHUNK = 2**24
"""Elements that are compared at once."""
_LARGER = 4.0
"""Times the largest value of a column from which on its errors are of another size, too."""
_COUNTS = 2e-5
"""The proportion of what a count compares that rounding decides, at most."""


@dataclass(frozen=True)
class RelativeBounds:
    """How far an output may be from the reference's, beside its size: found on a part of it, for all of it."""

    row: float
    """Of an element, beside the root mean square of its row."""
    rtol: float
    """Of an element, beside itself."""
    norm: float
    """Of all elements, beside their norm."""

    def times(self, factor: float) -> RelativeBounds:
        return RelativeBounds(factor * self.row, factor * self.rtol, factor * self.norm)

    def or_more(self, other: RelativeBounds) -> RelativeBounds:
        return RelativeBounds(max(self.row, other.row), max(self.rtol, other.rtol), max(self.norm, other.norm))


@dataclass(frozen=True)
class LeafTolerance:
    """Of one output."""

    norm: float
    """L2 norm of the allowed error of one call on inputs like those that the bounds come from."""
    max_error: float
    """The largest allowed error of an element."""
    reference_norm: float
    reference_max: float
    """L2 norm and largest value of the output that the bounds come from: bounds grow with them in proportion."""
    columns: Tensor | None = field(default=None, compare=False)
    """The largest allowed error by place in the last dimensions, fp64 [C]; None where places are not alike."""
    rtol: float = 0.0
    """An element may err by so much of the largest value of its column in any case."""
    sizes: Tensor | None = field(default=None, compare=False)
    """The largest value by place, fp64 [C], where `columns` are given. A place that now has much larger ones, as one
    that a ReLU made zero for all inputs before, is bounded as any element is."""

    def problem(self, expected: Tensor, actual: Tensor, calls: int) -> str | None:
        """What is wrong with an output of several calls, [calls, n] each, or None."""
        if not expected.is_floating_point():
            return _problem_of_integers(expected, actual, calls)
        if not expected.numel():
            return None
        one, other = expected.reshape(-1), actual.reshape(-1)
        max_error, largest, *squares = reductions.by(one, other).differences(one, other)
        error_norm, size = map(math.sqrt, squares)
        pairs = (size / calls**0.5, self.reference_norm), (largest, self.reference_max)
        growth = [now / then if then else 1.0 for now, then in pairs]
        bounds = self.norm * calls**0.5, self.max_error
        max_norm, bound_on_elements = (bound * max(1.0, g) for bound, g in zip(bounds, growth, strict=True))
        if not max_error <= bound_on_elements:
            return f"an output differs by {max_error:.3g}, at most {bound_on_elements:.3g} was expected"
        if not error_norm <= max_norm:
            found, most = (value / size if size else value for value in (error_norm, max_norm))
            return f"the errors of an output are together {found:.3g} of it, at most {most:.3g} was expected"
        if self.columns is None or max_error <= max(1.0, growth[1]) * self._least:
            return None  # what is within the narrowest bound needs no look at each column
        return self._problem_of_columns(one, other, max(1.0, growth[1]))

    @functools.cached_property
    def _least(self) -> float:
        """The bound of the column that may err least."""
        return float(self.columns.amin()) if self.columns is not None and self.columns.numel() else 0.0

    def _problem_of_columns(self, expected: Tensor, actual: Tensor, growth: float) -> str | None:
        assert self.columns is not None
        columns = self.columns.to(expected.device)
        error, size = torch.zeros_like(columns), torch.zeros_like(columns)
        tables = (t.reshape(-1, len(columns)).split(max(1, _CHUNK // len(columns))) for t in (expected, actual))
        for one, other in zip(*tables, strict=True):
            finite = one.isfinite()
            largest = lambda values, finite=finite: torch.where(finite, values, 0.0).abs().amax(0).double()
            error, size = torch.maximum(error, largest(other - one)), torch.maximum(size, largest(one))
        allowed = torch.maximum(growth * columns, self.rtol * size)
        if self.sizes is not None:
            is_new = size > _LARGER * growth * self.sizes.to(size.device)
            allowed = torch.where(is_new, growth * self.max_error, allowed)
        if bool((error <= allowed).all()):
            return None
        worst = int((error / allowed).nan_to_num(nan=0.0).argmax())
        return f"an output differs by {error[worst]:.3g} at {worst}, at most {allowed[worst]:.3g} was expected there"


@dataclass(frozen=True)
class Tolerance:
    """Bounds for the outputs of many calls at once, as raw bytes: cheaper than `Expected`, which needs fp64.

    What is expected are the reference's outputs in its own precision. Each output has bounds of its own: a large one
    excuses nothing in a small one.
    """

    tensors: Mapping[str, LeafTolerance]
    """Of each tensor that is compared, by its path, in the order in which a call's outputs are encoded."""
    scalar_error: float = 0.0
    """The largest allowed error of a number that is no tensor."""

    def check(
        self, expected: Tensor, actual: Tensor, theirs: Sequence[Slot], ours: Sequence[Slot], start: int, calls: int
    ) -> str | None:
        """What is wrong with the outputs of several calls, or None.

        Args:
            expected, actual: uint8 [n], the areas with all outputs of the reference and of the submission.
            theirs, ours: where these lie, counted from `start` bytes before the areas, those of one call after the
                other.
        """
        for number, leaf in enumerate(self.tensors.values()):
            sides = (expected, theirs), (actual, ours)
            one, other = (_of_all_calls(area, slots[number :: len(self.tensors)], start) for area, slots in sides)
            if problem := leaf.problem(one, other, calls):
                return problem
        return None

    def check_tree(self, expected: Any, outputs: Any) -> str | None:
        """What is wrong with the outputs of one call, a tree whose tensors are `OutputTensor`, or None."""
        theirs, ours = leaves(expected), leaves(outputs)
        if [path for path, _ in theirs] != [path for path, _ in ours]:
            return f"returned {form_of(outputs)}, expected {form_of(expected)}"
        for (path, value), (_, actual) in zip(theirs, ours, strict=True):
            if not isinstance(value, Tensor):
                fine = type(actual) is type(value) and (actual == value or abs(actual - value) <= self.scalar_error)
                problem = None if fine else f"{path} is {actual!r}, expected {value!r}"
            elif not isinstance(actual, OutputTensor) or not alike(actual.value, value):
                problem = f"{path} has another form than {shape_of(value)} {dtype_of(value)}"
            else:
                problem = self.tensors[path].problem(value.reshape(1, -1), actual.value.reshape(1, -1), 1)
            if problem:
                return problem
        return None


def _of_all_calls(area: Tensor, slots: Sequence[Slot], start: int) -> Tensor:
    """One output of each call, [calls, n]: a view where they lie at equal distances, as they usually do."""
    first, number = slots[0], len(slots)
    dtype, begin = DTYPES[first.dtype], first.offset - start
    step = slots[1].offset - first.offset if number > 1 else first.nbytes
    if all(slot.offset == first.offset + k * step for k, slot in enumerate(slots)):
        return area.as_strided((number, first.nbytes), (step, 1), area.storage_offset() + begin).view(dtype)
    return torch.stack([area[slot.offset - start :][: slot.nbytes].view(dtype) for slot in slots])


def _problem_of_integers(expected: Tensor, actual: Tensor, calls: int) -> str | None:
    """Integers may differ by `_COUNTS` of themselves, which sums of comparisons may, and elsewhere where rounding
    decides, in a thousandth of the places."""
    apart = (actual.double() - expected.double()).abs() > _COUNTS * expected.double().abs()
    wrong = int(apart.sum())
    return f"an output differs in {wrong} places" if wrong > calls * (expected.numel() // calls // 1000) else None
