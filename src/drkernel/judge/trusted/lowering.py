"""Does the error of an output have the pattern of products in lower precision?

TF32 on positive numbers errs by 5.6e-6 after 2048 terms, as three products of TF32 do, or a long sum of fp32. So size
does not tell. But the errors of TF32 follow from the inputs: rounding the factors in fp64 gives each of them. Honest
errors have nothing in common with these. So the output's errors are projected onto them: TF32 gives 1, half of the
terms in TF32 give 0.5, and honest kernels give 0, within an uncertainty that the number of outputs makes small.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from drkernel.judge.trusted.mismatch import Mismatch

_PART, _MOST, _SURE = 0.25, 2.0, 6.0
"""A projection of this size, so many standard deviations from none, shows lower precision. A larger one shows an output
that is wrong in another way."""
FEW = 32
"""Fewer elements do not show it."""
_LEAST = 2.0**-26
"""A difference below this, beside the output, is nothing that lower precision could be known by."""
MANY = 2**18
"""More elements are not needed."""


class Lowering:
    """Some outputs of lower precision, at random places: all where they are few.

    Args:
        name: of the precision, for people: `TF32`.
        lowered, exact: fp64 [R, C], the reference's outputs with products of that precision, and exact ones.
        seed: of the places.
    """

    def __init__(self, name: str, lowered: Tensor, exact: Tensor, seed: int):
        self.name = name
        self._places: Tensor | None = None
        if exact.numel() > MANY:
            places = torch.Generator(exact.device).manual_seed(seed)
            self._places = torch.randint(exact.numel(), (MANY,), generator=places, device=exact.device)
        self._exact = self._some(exact)
        self._pattern = self._some(lowered) - self._exact

    def explains(self, value: Tensor) -> bool:
        """Whether an output's errors are those of lower precision, wholly or in part."""
        error = self._some(value).double() - self._exact
        table = torch.stack([error, self._pattern, self._exact, torch.ones_like(error)])
        return _projects((table @ table.T).tolist(), len(error))

    def _some(self, values: Tensor) -> Tensor:
        values = values.reshape(-1)
        return values if self._places is None else values[self._places]

    def mismatch(self, path: str, problem: Mismatch) -> Mismatch:
        """The refusal, which says why."""
        text = f"{path} is right in {self.name}; this task asks for fp32 (tl.dot(..., input_precision='ieee')): "
        return dataclasses.replace(problem, reason="wrong_values", text=text + problem.text)


def _projects(gram: list[list[float]], number: int) -> bool:
    """From the inner products of the error, the error of lower precision, the exact output, and ones.

    What the exact output and a constant explain is taken out first: truncated sums err in proportion to the output.
    """
    if not math.isfinite(sum(map(sum, gram))) or number < FEW:
        return False
    size = gram[2][2]
    for place in (3, 2):
        gram = _without(gram, place)
    own, shared, pattern = gram[0][0], gram[0][1], gram[1][1]
    if pattern <= _LEAST**2 * size or pattern <= 0:
        return False
    part = shared / pattern
    rest = max(0.0, own - part * shared)
    uncertainty = math.sqrt(rest / (pattern * (number - 3)))
    return _PART <= part <= _MOST and part >= _SURE * uncertainty


def _without(gram: list[list[float]], place: int) -> list[list[float]]:
    """The inner products of what is orthogonal to one of the vectors."""
    if gram[place][place] <= 0:
        return gram
    return [
        [gram[i][j] - gram[i][place] * gram[j][place] / gram[place][place] for j in range(len(gram))]
        for i in range(len(gram))
    ]
