"""Why an output is wrong, in words for people and in numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drkernel.judge.trusted import reductions


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


def worst(path: str, value: Tensor, exact: Tensor, bounds: tuple[Tensor, float, float], chunk: int = 2**20) -> Mismatch:
    """Describes the worst place of an output that is wrong.

    Args:
        exact: [R, C], of which `value` has the elements in its own shape.
        bounds: of an element, [R, C] or [R, 1], as a share of the element, and a factor on both.
        chunk: elements that are compared at once: a large output is not looked at as a whole to show one place.
    """
    table, rows = value.reshape(exact.shape), max(1, chunk // max(1, exact.shape[1]))
    for first in range(0, len(table), rows):
        part = slice(first, first + rows)
        special, beyond, error = reductions.deviating(table[part], exact[part], bounds[0][part], *bounds[1:])
        is_whole = part.stop >= len(table) and not first
        for reason, bad in (("not_finite", special), ("wrong_values", beyond)):
            if bool(bad.any()):
                return describe(reason, path, value.shape, first, table[part], exact[part], bad, is_whole)
    # no element is beyond its bound, but the norm of all errors is: show the last chunk's worst
    return describe("wrong_values", path, value.shape, first, table[part], exact[part], error >= error.max(), False)
