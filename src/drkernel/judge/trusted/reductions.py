"""The sums and maxima that comparisons rest on: by torch anywhere, by cuda.fused on large tensors of a GPU."""

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
    """What `cuda.fused` computes in one pass each, with the same interface: for the CPU, and for small tensors."""

    @staticmethod
    def statistics(exact: Tensor, near: Tensor, shaken: Tensor) -> tuple[Tensor, Tensor, list[float]]:
        finite, near_finite = exact.isfinite(), near.isfinite()
        size = torch.where(finite, exact.abs(), 0.0)
        errors = [torch.nan_to_num((other.double() - exact).abs(), nan=0.0, posinf=0.0) for other in (near, shaken)]
        worst = torch.maximum(*(error.amax(1) for error in errors))
        power = size.square().sum(1)
        numbers = [power.sum(), *(error.square().sum() for error in errors), _most(size)]
        numbers += [(finite != near_finite).sum(), (~(finite & near_finite)).sum()]
        return power, worst, torch.stack([number.double() for number in numbers]).tolist()

    @staticmethod
    def deviations(value: Tensor, exact: Tensor, floor: Tensor, slope: float) -> list[float]:
        special, beyond, error = deviant(value, exact, floor, slope)
        return torch.stack([special.sum().double(), beyond.sum().double(), error.square().sum()]).tolist()

    @staticmethod
    def differences(right: Tensor, got: Tensor) -> list[float]:
        right, got = right.double(), got.double()
        same = (right == got) | (right.isnan() & got.isnan())
        error = torch.where(same, 0.0, torch.nan_to_num((got - right).abs(), nan=math.inf, posinf=math.inf))
        size = torch.where(right.isfinite(), right.abs(), 0.0)
        return torch.stack([_most(error), _most(size), error.square().sum(), size.square().sum()]).tolist()


def by(*tensors: Tensor) -> type[Torch] | ModuleType:
    """Who goes through these tensors."""
    first = tensors[0]
    together = all(t.device == first.device and t.dtype in _FUSED for t in tensors)
    if not (together and first.is_cuda and first.numel() >= _LARGE):
        return Torch
    from drkernel.judge.devices.cuda import (
        fused,  # here, because the judge on the CPU does without Triton in this process
    )

    return fused


def deviant(value: Tensor, exact: Tensor, floor: Tensor, slope: float) -> tuple[Tensor, Tensor, Tensor]:
    """Where [R, C] NaN and infinities are not the same, where the difference is beyond its bound, and the difference.

    Args:
        floor: [R], the least bound of each row; an element's bound is |exact| * slope where that is more.
    """
    value, finite = value.double(), exact.isfinite()
    same_special = (value == exact) | (value.isnan() & exact.isnan())
    special = torch.where(finite, ~value.isfinite(), ~same_special)
    error = torch.where(finite, (value - exact).abs(), 0.0)
    bound = torch.maximum(floor[:, None], torch.where(finite, exact.abs(), 0.0) * slope)
    return special, ~(error <= bound), error


def _most(values: Tensor) -> Tensor:
    return values.max() if values.numel() else values.new_zeros(())
