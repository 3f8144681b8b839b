"""Bounds for the outputs of many calls at once, as raw bytes, and for calls that are asked again on other inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from drkernel.judge.boundary.shared_tensors import DTYPES, Slot
from drkernel.judge.trusted import reductions
from drkernel.judge.trusted.outputs import OutputTensor, dtype_of, form_of, leaves, shape_of


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
class Tolerance:
    """Bounds for the outputs of many calls at once, as raw bytes: cheaper than `Expected`, which needs fp64.

    What is expected are the reference's outputs in its own precision.
    """

    norm: float
    """L2 norm of the allowed error of one call on inputs like those that the bounds come from."""
    max_error: float
    """The largest allowed error of an element."""
    reference_norm: float
    reference_max: float
    """L2 norm and largest value of the outputs that the bounds come from: bounds grow with them in proportion."""

    def check(self, expected: Tensor, actual: Tensor, slots: Sequence[Slot], start: int, calls: int) -> str | None:
        """What is wrong with the outputs of several calls, or None.

        Args:
            expected, actual: uint8 [n], the areas with all outputs of the reference and of the submission, in one
                layout.
            slots: where the outputs lie, counted from `start` bytes before the areas.
        """
        dtypes = {DTYPES[slot.dtype] for slot in slots}
        if len(dtypes) == 1 and (dtype := dtypes.pop()).is_floating_point:
            return self._check_floats(expected.view(dtype), actual.view(dtype), calls)
        for slot in slots:
            dtype = DTYPES[slot.dtype]
            one, other = (t[slot.offset - start :][: slot.nbytes].view(dtype) for t in (expected, actual))
            problem = self._check_floats(one, other, 1) if dtype.is_floating_point else _check_integers(one, other)
            if problem:
                return problem
        return None

    def check_tree(self, expected: Any, outputs: Any) -> str | None:
        """What is wrong with the outputs of one call, a tree whose tensors are `OutputTensor`, or None."""
        theirs, ours = leaves(expected), leaves(outputs)
        if [path for path, _ in theirs] != [path for path, _ in ours]:
            return f"returned {form_of(outputs)}, expected {form_of(expected)}"
        for (path, value), (_, actual) in zip(theirs, ours, strict=True):
            if not isinstance(value, Tensor):
                fine = type(actual) is type(value) and (actual == value or abs(actual - value) <= self.max_error)
                problem = None if fine else f"{path} is {actual!r}, expected {value!r}"
            elif not isinstance(actual, OutputTensor) or not _alike(actual.value, value):
                problem = f"{path} has another form than {shape_of(value)} {dtype_of(value)}"
            elif value.is_floating_point():
                problem = self._check_floats(value.reshape(-1), actual.value.reshape(-1), 1)
            else:
                problem = _check_integers(value, actual.value)
            if problem:
                return problem
        return None

    def _check_floats(self, expected: Tensor, actual: Tensor, calls: int) -> str | None:
        if not expected.numel():
            return None
        max_error, largest, *squares = reductions.by(expected, actual).differences(expected, actual)
        error_norm, size = map(math.sqrt, squares)
        pairs = (size / calls**0.5, self.reference_norm), (largest, self.reference_max)
        growth = [now / then if then else 1.0 for now, then in pairs]
        bounds = self.norm * calls**0.5, self.max_error
        max_norm, bound_on_elements = (bound * max(1.0, g) for bound, g in zip(bounds, growth, strict=True))
        if error_norm <= max_norm and max_error <= bound_on_elements:
            return None
        return f"an output differs by {max_error:.3g}, at most {bound_on_elements:.3g} was expected"


def _check_integers(expected: Tensor, actual: Tensor) -> str | None:
    """Integers may differ where rounding decides, in a thousandth of the places."""
    wrong = int((expected != actual).sum())
    return f"an output differs in {wrong} places" if wrong > max(1, expected.numel() // 1000) else None


def _alike(first: Tensor, second: Tensor) -> bool:
    return (first.shape, first.dtype) == (second.shape, second.dtype)
