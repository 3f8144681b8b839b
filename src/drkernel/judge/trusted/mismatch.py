"""Why an output is wrong, in words for people and in numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mismatch:
    """Why an output is wrong, in words for people and in numbers. A verdict's evidence has them under these names."""

    reason: str
    """wrong_structure | wrong_type | wrong_shape | wrong_dtype | wrong_values | not_finite | expanded |
    edits_input | aliases_input | overwrites_output"""
    text: str
    output: str = ""
    index: tuple[int, ...] = ()
    expected: float | None = None
    got: float | None = None
    share: float | None = None
    """The proportion of elements beyond the tolerance."""
    error: float | None = None
    """The largest absolute difference."""
    right_in: str = ""
    """The format of factors in which the outputs are right, where the task does not allow it: TF32, bf16, fp16."""


OVERWRITES = Mismatch(
    "overwrites_output", "forward writes into the output of the call before: it needs memory of its own, or a copy"
)


def describe(
    reason: str, path: str, shape: Sequence[int], first: int, value: Tensor, expected: Tensor, bad: Tensor, whole: bool
) -> Mismatch:
    """Describes the worst element among the bad ones.

    Args:
        shape: of the output that the rows `value` and `expected` [r, C] are from, beginning with row `first`.
        whole: whether they are all of it, so that the proportion of bad ones is known.
    """
    gap = torch.where(bad, torch.nan_to_num((value.double() - expected.double()).abs(), nan=math.inf), -1.0)
    place = int(gap.reshape(-1).argmax())
    got, right, error = (float(t.reshape(-1)[place]) for t in (value, expected, gap))
    index: list[int] = []
    rest = first * value.shape[1] + place
    for size in reversed(shape):
        rest, step = divmod(rest, size)
        index.insert(0, step)
    share = float(bad.double().mean())
    where = f"{path}[{', '.join(map(str, index))}]" if index else path
    among = f"of {value.numel()} elements" if whole else f"of the {value.numel()} elements around it"
    text = f"{where} is {got:.6g}, expected {right:.6g}; {100 * share:.3g}% {among} are wrong"
    return Mismatch(reason, text, path, tuple(index), right, got, share, error)
