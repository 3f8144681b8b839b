"""Does the error of an output have the pattern of products in lower precision?

TF32 on positive numbers errs by 5.6e-6 after 2048 terms, as three products of TF32 do, or a long sum of fp32. So size
does not tell. But the errors of TF32 follow from the inputs: rounding the factors in fp64 gives each of them. Honest
errors have nothing in common with these. So the output's errors are projected onto them: TF32 gives 1, half of the
terms in TF32 give 0.5, and honest kernels give 0, within an uncertainty that the number of outputs makes small.

Another question is what to say of wrong outputs. `explained` says that they are right in TF32, bf16 or fp16 where they
are, element by element, what products in that format give.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.trusted.comparison.mismatch import Mismatch
from drkernel.judge.trusted.rounding.formats import ALLOWED_SHARE

_PART, _MOST, _SURE = 0.25, 2.0, 6.0
"""A projection of this size, so many standard deviations from none, shows lower precision. A larger one shows an output
that is wrong in another way."""
FEW = 32
"""Fewer elements do not show it."""
_LEAST = 2.0**-26
"""A difference below this, beside the output, is nothing that lower precision could be known by."""
_SAME = 1e-9
"""A vector of which the others leave no larger share (of its square) is one of them."""
MANY = 2**18
"""More elements are not needed."""
_CHUNK = 2**22
"""Elements that are compared at once."""
_FAR = 0.25
"""An output that is so far off, beside its own size, is wrong in another way."""
_CROSSED, _RARE, _RARE_FACTOR = 0.25, 1e-3, 8.0
"""How much of the format's error may be left; how many elements may be beyond their bounds, and how far."""
_JUMPS = 4.0
"""An error of lower precision counts as at most so many times the median one: what hangs on a choice jumps by more."""
_LARGER, _IN_A_ROW = 2.0, 6.0
"""How many times the format's error an output of a chain of products may have, and one of its elements."""
ADVICE = {
    "TF32": "fp32: input_precision='ieee' and no fp16 (tl.sum of a product of two matrices is TF32, too)",
    "bf16": "factors in fp32: no cast before a product",
    "fp16": "factors in fp32: no cast before a product",
    "fp8": "factors of more bits: no cast to fp8",
}
"""What a task asks for instead, and how to have it, by the format that it does not allow. TF32 and fp16 have ten bits
both, so that they differ only beyond the range of fp16."""


class Lowering:
    """Some outputs of lower precision, at random places: all where they are few.

    Args:
        name: of the precision, for people: `TF32`.
        lowered, exact: fp64 [R, C], the reference's outputs with products of that precision, and exact ones.
        seed: of the places.
    """

    allowed: Callable[[], Iterable[Tensor]] = tuple
    """The outputs with products in the formats that the task allows, as they are asked for."""

    def __init__(self, name: str, lowered: Tensor, exact: Tensor, seed: int):
        self.name = name
        self._places: Tensor | None = None
        if exact.numel() > MANY:
            places = torch.Generator(exact.device).manual_seed(seed)
            self._places = torch.randint(exact.numel(), (MANY,), generator=places, device=exact.device)
        self._exact = self._some(exact)
        self._pattern = self._some(lowered) - self._exact

    def explains(self, value: Tensor) -> bool:
        """Whether an output's errors are those of lower precision, wholly or in part. Where rounding decides what is
        positive or largest, gradients jump, with lower precision in other places than without: there errors count
        less. What a format that the task allows explains, too, tells nothing: it has some of the same jumps."""
        error = self._some(value).double() - self._exact
        return self._is_in(error) and (not self._patterns_allowed or self._is_in(error, *self._patterns_allowed))

    def _is_in(self, error: Tensor, *others: Tensor) -> bool:
        """Whether an error has this pattern beside others."""
        table = self._weights * torch.stack([error, self._pattern, self._exact, torch.ones_like(error), *others])
        return _projects((table @ table.T).tolist(), len(error))

    @functools.cached_property
    def _patterns_allowed(self) -> list[Tensor]:
        return [self._some(other) - self._exact for other in self.allowed()]

    @functools.cached_property
    def _weights(self) -> Tensor:
        size = self._pattern.abs()
        usual = size[size > 0].median() if bool((size > 0).any()) else size.new_zeros(())
        return (_JUMPS * usual / size.clamp_min(torch.finfo(size.dtype).tiny)).clamp_max(1.0)

    def _some(self, values: Tensor) -> Tensor:
        values = values.reshape(-1)
        return values if self._places is None else values[self._places]

    def mismatch(self, path: str, problem: Mismatch) -> Mismatch:
        """The refusal, which says why."""
        asks = ADVICE.get(self.name, "fp32")
        text = f"errors of {path} are in part those of {self.name}; this task asks for {asks}: {problem.text}"
        return dataclasses.replace(problem, reason="wrong_values", text=text)


@dataclasses.dataclass(frozen=True)
class Bounds:
    """An exact output, fp64 [R, C], and how far an honest one may be from it."""

    exact: Tensor
    norm: float
    """L2 norm of the allowed error."""
    atol: Tensor
    """Allowed error of each element, [R, C], or by row [R, 1]."""
    rtol: float
    """The same as a share of the element."""


def explained(
    problem: Mismatch, value: Tensor, bounds: Bounds, lowered: Iterable[tuple[str, Tensor]], chained: bool
) -> Mismatch | None:
    """The mismatch of an output that is right in a format which the task does not allow; None where it is in none.

    Args:
        lowered: formats, and the fp64 output with products in them.
        chained: whether factors are results of other products; see `_resembles`.
    """
    value = value.reshape(bounds.exact.shape)
    if not _distance(value, bounds.exact) <= _FAR * float(bounds.exact.norm()):
        return None
    is_that = lambda low: _matches(value, low, bounds) or (chained and _resembles(value, low, bounds))
    name = next((name for name, low in lowered if is_that(low.reshape(value.shape))), None)
    if name is None:
        return None
    text = f"{problem.output} is right in {name}; this task asks for {ADVICE[name]}: {problem.text}"
    return dataclasses.replace(problem, reason="wrong_values", text=text, right_in=name)


def _distance(value: Tensor, other: Tensor) -> float:
    """L2 norm of a difference, without a copy of the whole in fp64."""
    rows = max(1, _CHUNK // max(1, other.shape[1]))
    parts = zip(value.split(rows), other.split(rows), strict=True)
    return math.sqrt(sum(float((one.double() - two).square().sum()) for one, two in parts))


def _matches(value: Tensor, low: Tensor, bounds: Bounds) -> bool:
    """Whether an output is what lower precision gives, up to honest errors. A factor that such errors move across the
    border between two numbers of the format adds a little of the format's own error."""
    size = _distance(low, bounds.exact)
    if not math.isfinite(size) or not _distance(value, low) <= bounds.norm + _CROSSED * size:
        return False
    return _all_near(value, low, low, bounds, 1.0)


def _resembles(value: Tensor, low: Tensor, bounds: Bounds) -> bool:
    """Whether an output has errors of the size that lower precision gives, in part the same ones.

    In a chain of products a kernel may round other numbers than the reference has: attention, weights that are not yet
    divided by their sum.
    """
    size = _distance(low, bounds.exact)
    if not math.isfinite(size) or not _distance(value, bounds.exact) <= bounds.norm + _LARGER * size:
        return False
    return _all_near(value, bounds.exact, low, bounds, _IN_A_ROW) and Lowering("", low, bounds.exact, 0).explains(value)


def _all_near(value: Tensor, centre: Tensor, low: Tensor, bounds: Bounds, most: float) -> bool:
    """Whether nearly all elements are near those of `centre`: within their bounds and `most` times what lower precision
    usually changes in their row."""
    rows, beyond = max(1, _CHUNK // max(1, low.shape[1])), 0
    for start in range(0, len(low), rows):
        part = slice(start, start + rows)
        exact = bounds.exact[part]
        usual = (low[part] - exact).square().mean(1, keepdim=True).sqrt()
        allowed = bounds.atol[part] + bounds.rtol * exact.abs() + most * usual
        error = (value[part].double() - centre[part]).abs()
        if bool((error > _RARE_FACTOR * allowed).any()):
            return False
        beyond += int((error > allowed).sum())
    return beyond <= _RARE * low.numel()


def _projects(gram: list[list[float]], number: int) -> bool:
    """From the inner products of the error, the error of lower precision, the exact output, ones, and errors of allowed
    formats.

    What all but the first two explain is taken out first: truncated sums err in proportion to the output.
    """
    if not math.isfinite(sum(map(sum, gram))) or number < FEW:
        return False
    whole = [gram[i][i] for i in range(len(gram))]
    for place in reversed(range(2, len(gram))):
        if gram[place][place] > _SAME * whole[place]:  # else those taken out before explain it
            gram = _without(gram, place)
    own, shared, pattern = gram[0][0], gram[0][1], gram[1][1]
    if pattern <= max(_LEAST**2 * whole[2], _SAME * whole[1]):
        return False
    part = shared / pattern
    rest = max(0.0, own - part * shared)
    uncertainty = math.sqrt(rest / (pattern * (number - 3)))
    return _PART <= part <= _MOST and part >= _SURE * uncertainty


def _without(gram: list[list[float]], place: int) -> list[list[float]]:
    """The inner products of what is orthogonal to one of the vectors."""
    return [
        [gram[i][j] - gram[i][place] * gram[j][place] / gram[place][place] for j in range(len(gram))]
        for i in range(len(gram))
    ]


def further(exact: Any, one: Any, other: Any) -> Any:
    """Of two leaves the one that is further from the exact one, element by element."""
    if isinstance(exact, Tensor):
        if exact.is_floating_point():
            return torch.where((other - exact).abs() > (one - exact).abs(), other, one)
        return other if torch.equal(one, exact) else one
    return max(one, other, key=lambda value: abs(value - exact)) if isinstance(exact, float) else other


def part_of_the_way(exact: Any, other: Any) -> Any:
    """A leaf between the exact one and another, at `ALLOWED_SHARE`; what has no fractions is the other one."""
    floats = isinstance(exact, float) or (isinstance(exact, Tensor) and exact.is_floating_point())
    return exact + ALLOWED_SHARE * (other - exact) if floats else other
