"""The sums and maxima that comparisons rest on: by torch, or by `devices.cuda.fused` on large tensors of a GPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from types import ModuleType

_LARGE = 2**14
"""Elements from which one pass on the GPU is worth a kernel of its own."""
_FUSED = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class Torch:
    """The same functions as `devices.cuda.fused`, which needs one pass for each: for the CPU and for small tensors."""

    @staticmethod
    def statistics(exact: Tensor, rounded: Tensor, jittered: Tensor) -> tuple[Tensor, Tensor, list[float]]:
        """What a tolerance is made of.

        Args:
            exact, rounded, jittered: floating [R, C]; the first and the last usually fp64.

        Returns:
            The sum of squares of `exact` by row, fp64 [R]; the largest |rounded - exact| or |jittered - exact| by row,
            fp64 [R]; and six numbers: sums of squares of exact, rounded - exact and jittered - exact, the largest
            |exact|, how many places are finite in only one of rounded and exact, how many are not finite in both.
        """
        exact = exact.double()
        finite, rounded_finite = exact.isfinite(), rounded.isfinite()
        size = torch.where(finite, exact.abs(), 0.0)
        errors = [
            torch.nan_to_num((other.double() - exact).abs(), nan=0.0, posinf=0.0) for other in (rounded, jittered)
        ]
        row_errors = torch.maximum(*(error.amax(1) for error in errors))
        row_squares = size.square().sum(1)
        numbers = [row_squares.sum(), *(error.square().sum() for error in errors), _max(size)]
        numbers += [(finite != rounded_finite).sum(), (~(finite & rounded_finite)).sum()]
        return row_squares, row_errors, torch.stack([number.double() for number in numbers]).tolist()

    @staticmethod
    def deviations(value: Tensor, exact: Tensor, atol: Tensor, rtol: float, factor: float = 1.0) -> list[float]:
        """How many places are wrongly NaN or infinite, how many are beyond their bound, and the sum of squared errors.

        Args:
            value, exact, atol, rtol, factor: see `deviating`.
        """
        special, beyond, error = deviating(value, exact, atol, rtol, factor)
        return torch.stack([special.sum().double(), beyond.sum().double(), error.square().sum()]).tolist()

    @staticmethod
    def differences(expected: Tensor, actual: Tensor) -> list[float]:
        """The largest error, the largest |expected|, and the sums of squares of the errors and of expected."""
        expected, actual = expected.double(), actual.double()
        same = (expected == actual) | (expected.isnan() & actual.isnan())
        error = torch.where(same, 0.0, torch.nan_to_num((actual - expected).abs(), nan=math.inf, posinf=math.inf))
        size = torch.where(expected.isfinite(), expected.abs(), 0.0)
        return torch.stack([_max(error), _max(size), error.square().sum(), size.square().sum()]).tolist()


def by(*tensors: Tensor) -> type[Torch] | ModuleType:
    """The implementation for these tensors."""
    return fused_for(*tensors) or Torch


def fused_for(*tensors: Tensor) -> ModuleType | None:
    """`devices.cuda.fused`, where it takes these tensors and a kernel of its own is worth it."""
    first = tensors[0]
    together = all(t.device == first.device and t.dtype in _FUSED for t in tensors)
    if not (together and first.is_cuda and first.numel() >= _LARGE):
        return None
    from drkernel.judge.devices.cuda import fused  # not above: on the CPU, the judge does without Triton

    return fused


def deviating(
    value: Tensor, exact: Tensor, atol: Tensor, rtol: float, factor: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Element by element: NaN and infinities that are not the same, differences beyond their bound, and the difference.

    Args:
        value, exact: [R, C].
        atol: [R, C], or by row [R, 1]. An element's bound is its `atol`, or `|exact| * rtol` where that is more ...
        factor: ... so many times.

    Returns:
        bool [R, C], bool [R, C], fp64 [R, C].
    """
    value, finite = value.double(), exact.isfinite()
    same_special = (value == exact) | (value.isnan() & exact.isnan())
    special = torch.where(finite, ~value.isfinite(), ~same_special)
    error = torch.where(finite, (value - exact).abs(), 0.0)
    bound = factor * torch.maximum(atol, torch.where(finite, exact.abs(), 0.0) * rtol)
    return special, ~(error <= bound), error


def _max(values: Tensor) -> Tensor:
    return values.max() if values.numel() else values.new_zeros(())
