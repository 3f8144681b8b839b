"""Is an output right? Expected values in fp64, and tolerances that follow from the reference's own rounding.

An output may be as far from the exact one as a small multiple of two errors: the reference's own in its precision, and
that of a run with other rounding in every operator (`rounding.Noise`). Both are taken at that output and on these
inputs. So an honest kernel with another order of summation passes, and a long sum elsewhere in the task grants nothing.
Outputs of 16 bits are rounded to them a few times at most. See judge/PROPERTIES.md, P7.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.boundary.shared_tensors import repeats
from drkernel.judge.trusted import outputs, reductions
from drkernel.judge.trusted.comparison import element_bounds
from drkernel.judge.trusted.comparison.block_tolerance import LeafTolerance, RelativeBounds, Tolerance
from drkernel.judge.trusted.comparison.integers import Flips, explained_ties
from drkernel.judge.trusted.comparison.lowering import FEW, Bounds, Lowering, explained
from drkernel.judge.trusted.comparison.mismatch import Mismatch, describe, worst
from drkernel.judge.trusted.outputs import OutputTensor, dtype_of, form_of, is_float, kind_of, leaves, same, shape_of
from drkernel.judge.trusted.rounding.rounding import EPS, UNIT
from drkernel.types import Precision

K_OWN, K_NOISE, K_MAX = 2.0, 4.0, 6.0
"""Allowed multiples: in the L2 norm, of the reference's own error and of noise; at a row's worst element, of both."""
K_MAX_16 = 4.0
"""The last where outputs have 16 bits: their own rounding is most of the error, and it does not add up."""
_ROUNDINGS_16 = 1.5
"""How many steps of a 16-bit format an element may be off: three roundings, each half a step."""
_FLOOR = 1.0
"""Errors are at least so many times the unit of the precision policy (`rounding.UNIT`)."""
_RARE, _RARE_FACTOR = 1e-3, 8.0
"""So many elements may exceed their bound, by at most this factor: random errors are small here and there."""
_DOUBT, _FEW_OFF, _FEW, _ROWS = 16.0, 0.01, 4, 8
"""More noise is asked for within so many times the bounds, or where such a share or so few elements are beyond, or so
few rows or columns, where there are so many: choices jump, as a ReLU's."""
_OTHER_INPUTS = 3.0
"""Bounds from another draw of the inputs, for the distance from the rounded reference, are wider by this factor."""
_BESIDE, _TINY, _RANGE = 1e-9, 1e-300, 2.0**96
"""The relative size below which a row counts as zero; the smallest divisor; larger outputs are near fp32's overflow."""


class Expected:
    """The expected outputs of one call, with their tolerances.

    Args:
        exact: the reference's output in fp64 (a tree of tensors and scalars).
        rounded: the same in the task's own precision; it also sets types, dtypes and shapes.
        noisy: the output with other rounding in every operator, at random; several where outputs are few.
        rerounded: of 16 bits, the output with the roundings of eager drawn again; for elements that stand alone.
        precision: of the task.
        lowered: names of precisions that the task forbids, and the fp64 output with products of such (`Lowering`).
        seed: of the places at which these are compared.

    Raises:
        ValueError: the reference's outputs have another structure or shape in fp64.
    """

    edits = False
    """Whether the reference changes its inputs."""
    aliases = False
    """Whether an output of the reference lies in an input's memory."""
    lowered_later: Callable[[], Iterable[tuple[str, Any]]] = tuple
    """As `lowered`, to explain wrong outputs: formats of factors that the task forbids."""
    chained = False
    """Whether the reference has several products."""
    _left_out: Collection[str] = ()

    def __init__(
        self,
        exact: Any,
        rounded: Any,
        noisy: Sequence[Any],
        precision: Precision = "ieee",
        lowered: Iterable[tuple[str, Any]] = (),
        seed: int = 0,
        rerounded: Sequence[Any] = (),
    ):
        self.rounded, self.precision = rounded, precision
        self._rounded = list(leaves(rounded))
        trees, again = ([dict(leaves(tree)) for tree in some] for some in ((exact, *noisy), rerounded))
        if any(tree.keys() != dict(self._rounded).keys() for tree in (*trees, *again)):
            raise ValueError("the reference's outputs have another structure in fp64")
        self._leaves = {
            path: _Leaf([tree[path] for tree in trees], [tree[path] for tree in again], value, precision)
            for path, value in self._rounded
        }
        for name, tree in lowered:
            for path, value in leaves(tree):
                self._leaves[path].add_lowering(name, value, seed)

    @classmethod
    def around(cls, rounded: Any, bounds: Sequence[RelativeBounds | None]) -> Expected:
        """What is expected where only the reference's own outputs are known, perhaps a part of them, and bounds by leaf
        (`bounds`). The norm of all errors is left to the caller (`squares`)."""
        expected = cls.__new__(cls)
        expected.rounded, expected._rounded = rounded, leaves(rounded)
        pairs = zip(expected._rounded, bounds, strict=True)
        expected._leaves = {path: _Leaf.around(value, found) for (path, value), found in pairs}
        return expected

    def bounds(self) -> list[RelativeBounds | None]:
        """How far each output may be from the reference's; None for those that must be equal."""
        pairs = zip(self._leaves.values(), self._rounded, strict=True)
        return [leaf.bounds() if is_float(value) else None for leaf, (_, value) in pairs]

    def squares(self) -> list[tuple[float, float]]:
        """Of each leaf, the sums of squares of the errors that were compared last, and of the outputs."""
        floats = [
            leaf for leaf, (_, value) in zip(self._leaves.values(), self._rounded, strict=True) if is_float(value)
        ]
        return [(leaf.error_square, leaf.reference_norm**2) for leaf in floats]

    @property
    def finite(self) -> bool:
        """Whether there is no NaN and no infinity."""
        return all(leaf.finite for leaf in self._leaves.values())

    @property
    def same_nonfinite(self) -> bool:
        """Whether NaN and infinities, if any, lie where they lie in fp64."""
        return all(leaf.same_nonfinite for leaf in self._leaves.values())

    @property
    def well_conditioned(self) -> bool:
        """Whether the tolerance can tell right from wrong: it is small beside the output, the output is far from
        overflow, and discrete values do not depend on rounding."""
        return all(leaf.well_conditioned for leaf in self._leaves.values())

    def leave_out_vague(self) -> bool:
        """Compares from now on only outputs whose bounds tell right from wrong. Returns whether there are any."""
        self._left_out = {path for path, leaf in self._leaves.items() if not leaf.well_conditioned}
        return self._left_out != self._leaves.keys()

    def check(self, tree: Any, slack: float = 1.0) -> Mismatch | None:
        """Compares outputs, a tree whose tensors are `OutputTensor`. None if they are right.

        Args:
            slack: factor on the allowed error; 10 asks whether outputs are at least nearly right.
        """
        found = dict(leaves(tree))
        if found.keys() != self._leaves.keys() or form_of(tree) != form_of(self.rounded):
            return Mismatch("wrong_structure", f"returned {form_of(tree)}, expected {form_of(self.rounded)}")
        for path, value in self._rounded:
            lowered = ((name, dict(leaves(low))[path]) for name, low in self.lowered_later())
            how = path, value, found[path], slack, lowered, self.chained
            if path not in self._left_out and (problem := self._leaves[path].check(*how)):
                return problem
        return None

    def fits(self, tree: Any) -> bool:
        """Whether outputs are right, without saying why not."""
        found = dict(leaves(tree))
        if found.keys() != self._leaves.keys() or form_of(tree) != form_of(self.rounded):
            return False
        return all(self._leaves[path].fits(path, value, found[path]) for path, value in self._rounded)

    def set_more_noise(self, trees: Callable[[], Iterable[Any]], allowed: Callable[[], Iterable[Any]] = tuple) -> None:
        """Says where outputs with other rounding come from, and those with products in the formats that the task
        allows. They are asked for once, before what is near is refused."""
        at = lambda given, path: (dict(leaves(tree))[path] for tree in given())
        for path, leaf in self._leaves.items():
            leaf.more_noise = functools.partial(at, trees, path)
            for low in leaf.lowerings:
                low.allowed = functools.partial(at, allowed, path)

    def tolerance(self) -> Tolerance:
        """How far outputs may be from the reference's own on other inputs of the same kind."""
        found = leaves(self.rounded, in_order=True)
        scalars = [self._leaves[path].max_error() for path, value in found if isinstance(value, float)]
        tensors = {path: self._leaves[path].tolerance(value) for path, value in found if isinstance(value, Tensor)}
        return Tolerance(tensors, _OTHER_INPUTS * max(scalars, default=0.0))

    def is_among(self, values: list[Tensor]) -> bool:
        """Whether each output is, in some shape, one of these values. Indices do not count beside floating outputs."""
        pairs = zip(self._leaves.values(), self._rounded, strict=True)
        tensors = [(leaf, value) for leaf, (_, value) in pairs if isinstance(value, Tensor)]
        sought = [(leaf, value) for leaf, value in tensors if is_float(value)] or tensors
        return bool(sought) and all(
            any(v.numel() == value.numel() and leaf.equals(v, value) for v in values) for leaf, value in sought
        )


class _Leaf:
    """One expected output: its fp64 value, and how far an output may be from it. Arguments as those of `Expected`."""

    finite: bool
    same_nonfinite: bool
    well_conditioned: bool
    norm: float
    """L2 norm of the allowed error."""
    reference_norm: float
    reference_max: float
    """L2 norm and largest value of the output."""
    error_square = 0.0
    """The sum of squared errors of what was compared last."""
    more_noise: Callable[[], Iterable[Any]] = tuple
    """See Expected.set_more_noise."""

    def __init__(self, exact_and_noisy: Sequence[Any], rerounded: Sequence[Any], rounded: Any, precision: Precision):
        exact, *noisy = exact_and_noisy
        self._given = rounded, precision
        self.lowerings: list[Lowering] = []
        if not is_float(rounded):
            self.finite = self.same_nonfinite = True
            self.well_conditioned = all(same(value, rounded) for value in (exact, *noisy))
            self.flips = Flips(rounded, (exact, *noisy))
            return
        device = exact.device if isinstance(exact, Tensor) else "cpu"
        exact, near, *noisy = (torch.as_tensor(v, device=device) for v in (exact, rounded, *noisy))
        if any(value.shape != exact.shape for value in (near, *noisy)):
            raise ValueError("the reference's outputs have another shape in fp64")
        self._table = element_bounds.table_of(exact.shape)
        self.exact, near, *noisy = (t.reshape(self._table) for t in (exact.double(), near, *noisy))
        found = [reductions.by(self.exact, near, other).statistics(self.exact, near, other) for other in noisy]
        row_squares, row_errors, numbers = found[0]
        for _, other_rows, other_numbers in found[1:]:
            row_errors = torch.maximum(row_errors, other_rows)
            numbers[2] = max(numbers[2], other_numbers[2])
        for other in rerounded if element_bounds.stands_alone(exact.shape) else ():
            row_errors = torch.maximum(row_errors, (other.reshape(self._table)[:, 0] - self.exact[:, 0]).abs())
        *squares, self.reference_max, disagreeing, nonfinite = numbers
        self.reference_norm, own, noise = map(math.sqrt, squares)
        self.finite, self.same_nonfinite = nonfinite == 0, disagreeing == 0
        k_max, least = self._bound(max(K_OWN * own, K_NOISE * noise), outputs.step_of(rounded), UNIT[precision])
        nothing = _BESIDE * self.reference_norm
        if self._table[1] > 1 and exact.numel():
            period = exact.shape[-1] if len(exact.shape) > 1 and exact.shape[-1] < element_bounds.MIN_ROW else 1
            given = self.exact, (near, *noisy), k_max, least, nothing, period
            self._late_atol = functools.partial(element_bounds.element_bounds, *given)
        else:
            rows = element_bounds.Rows(row_errors, (row_squares / max(1, self._table[1])).sqrt()).settled(nothing)
            self._atol = k_max * torch.maximum(rows.error, least * rows.size)[:, None]
        vague = noise > max(1e-2, 4 * UNIT[precision]) * self.reference_norm
        self.well_conditioned = not vague and self.reference_max < _RANGE

    @functools.cached_property
    def _atol(self) -> Tensor:
        """The bounds of elements beside those by their own size, fp64 [R, C] or [R, 1]; made when they first decide."""
        return vars(self).pop("_late_atol")()  # with it go the outputs that bounds come from

    @classmethod
    def around(cls, rounded: Any, bounds: RelativeBounds | None) -> _Leaf:
        """A leaf of which no exact value is known, with bounds beside its size."""
        leaf = cls.__new__(cls)
        leaf.lowerings, leaf.finite, leaf.same_nonfinite, leaf.well_conditioned = [], True, True, True
        leaf.flips = Flips(rounded)
        if bounds is None:
            return leaf
        value = torch.as_tensor(rounded)
        leaf._table = element_bounds.together(element_bounds.table_of(value.shape))
        leaf.exact = value.reshape(leaf._table)
        squares, _, numbers = reductions.by(leaf.exact).statistics(leaf.exact, leaf.exact, leaf.exact)
        leaf.reference_norm, leaf.reference_max = math.sqrt(numbers[0]), numbers[3]
        usual = (squares / max(1, leaf._table[1])).sqrt().clamp_min(_BESIDE * leaf.reference_norm)
        leaf._atol, leaf._rtol, leaf.norm = bounds.row * usual[:, None], bounds.rtol, math.inf
        return leaf

    def bounds(self) -> RelativeBounds:
        """Of a floating leaf."""
        table = self.exact.reshape(element_bounds.together(self._table))
        atol = self._atol.amax(1) if len(self._atol) == len(table) else self._atol.amax().view(1)
        size = self.reference_norm or _TINY
        usual = table.square().mean(1).sqrt().clamp_min(_BESIDE * size)
        return RelativeBounds(float((atol / usual).max()) if len(table) else 0.0, self._rtol, self.norm / size)

    def _bound(self, error: float, step: float, unit: float) -> tuple[float, float]:
        """Sets the bounds of the norm and of an element by its own size. Returns how many times the largest error of
        its row an element may have, and the least error beside the row's size that counts as one."""
        narrow = step > 2 * EPS
        k_max = K_MAX_16 if narrow else K_MAX
        least = max(_FLOOR * unit, 0.2 * step)  # rounding once has a fifth of a step, in the mean of all mantissas
        self.norm = max(error, (K_OWN if narrow else K_NOISE) * least * self.reference_norm)
        self._rtol = max(k_max * unit, _ROUNDINGS_16 * step if narrow else k_max * step)
        return k_max, least

    def add_lowering(self, name: str, lowered: Any, seed: int) -> None:
        """Notes what the output is in lower precision; only where there are enough elements to tell."""
        if isinstance(lowered, Tensor) and lowered.dtype == torch.float64 and lowered.numel() >= FEW:
            self.lowerings.append(Lowering(name, lowered, self.exact, seed))

    def max_error(self) -> float:
        """The largest error that any element may have."""
        return max(float(self._atol.max()), self._rtol * self.reference_max) if self._atol.numel() else 0.0

    def tolerance(self, rounded: Tensor) -> LeafTolerance:
        """How far this output may be from the reference's own on other inputs."""
        if not is_float(rounded):
            return LeafTolerance(0.0, 0.0, 0.0, 0.0)
        if "_noisier" in vars(self):
            return self._noisier.tolerance(rounded)
        bounds = _OTHER_INPUTS * self.norm, _OTHER_INPUTS * self.max_error()
        last = rounded.shape[-1] if rounded.dim() > 1 else 1  # of each token or sample, where they are few
        short = (
            1 < last < element_bounds.MIN_ROW and self._atol.numel() == rounded.numel()
        )  # a few numbers of each token or sample
        table = self._atol.reshape(-1, last) if short else self._atol
        many = table.shape[1] > 1 and len(table) >= element_bounds.MIN_ROW
        columns = _OTHER_INPUTS * table.amax(0) if many else None
        sizes = self.exact.reshape(table.shape).abs().amax(0).double() if many else None
        size = self.reference_norm, self.reference_max
        return LeafTolerance(*bounds, *size, columns, _OTHER_INPUTS * self._rtol, sizes)

    def check(self, path: str, rounded: Any, actual: Any, slack: float, *why: Any) -> Mismatch | None:
        if isinstance(rounded, Tensor) != isinstance(actual, OutputTensor):
            return Mismatch("wrong_type", f"{path} is {kind_of(actual)}, expected {kind_of(rounded)}", path)
        if not isinstance(rounded, Tensor):
            return self._check_scalar(path, rounded, actual, slack)
        value = actual.value
        if value.shape != rounded.shape:
            return Mismatch("wrong_shape", f"{path} has shape {shape_of(value)}, expected {shape_of(rounded)}", path)
        if value.dtype != rounded.dtype:
            return Mismatch("wrong_dtype", f"{path} is {dtype_of(value)}, expected {dtype_of(rounded)}", path)
        if actual.expanded and not repeats(rounded):
            return Mismatch("expanded", f"{path} has several elements at one place of memory, by its strides", path)
        if is_float(rounded):
            return self._check_values(path, value, rounded, slack, *why)
        rows = value.reshape(1, -1), rounded.reshape(1, -1)
        wrong = rows[0] != rows[1]
        if self.flips.allow(wrong) or explained_ties(value, wrong, self.more_noise):
            return None
        return describe("wrong_values", path, value.shape, 0, *rows, wrong, True)

    def fits(self, path: str, rounded: Any, actual: Any) -> bool:
        are_tensors = isinstance(rounded, Tensor) and isinstance(actual, OutputTensor)
        if are_tensors and is_float(rounded) and outputs.alike(actual.value, rounded):
            return self._is_right(actual.value, 1.0)
        return self.check(path, rounded, actual, 1.0) is None

    def equals(self, value: Tensor, rounded: Tensor) -> bool:
        """Whether a tensor of any shape and dtype holds the values."""
        if is_float(rounded):
            return self._within(value, 1.0)
        return torch.equal(value.reshape(-1).to(rounded.dtype), rounded.reshape(-1))

    def _check_scalar(self, path: str, rounded: Any, actual: Any, slack: float) -> Mismatch | None:
        if type(rounded) is not type(actual):
            return Mismatch("wrong_type", f"{path} is {kind_of(actual)}, expected {kind_of(rounded)}", path)
        if isinstance(rounded, float):
            value = torch.tensor(actual, dtype=torch.float64, device=self.exact.device)
            return self._check_values(path, value, value, slack)
        text = f"{path} is {actual!r}, expected {rounded!r}"
        return None if actual == rounded else Mismatch("wrong_values", text, path)

    def _check_values(self, path: str, value: Tensor, rounded: Tensor, slack: float, *why: Any) -> Mismatch | None:
        lowered = (low for low in self.lowerings if low.explains(value) and not low.explains(rounded))
        found = next(lowered, None) if slack == 1.0 else None
        if self._is_right(value, slack) and not found:
            return None
        problem = worst(path, value, self.exact, (self._atol, self._rtol, slack))
        bounds = Bounds(self.exact, self.norm, self._atol, self._rtol)
        if slack == 1.0 and why and (explanation := explained(problem, value, bounds, *why)):
            return explanation
        return found.mismatch(path, problem) if found else problem

    def _is_right(self, value: Tensor, slack: float) -> bool:
        """Whether a tensor holds the values, with more noise where that decides."""
        if self._within(value, slack):
            return True
        if not self._within(value, _DOUBT * slack) and not self._is_off_in_few_places(value, slack):
            return False
        return self._noisier._within(value, slack)

    @functools.cached_property
    def _noisier(self) -> _Leaf:
        """The same with bounds of more noise. Its own stay, so that no verdict hangs on what was asked before."""
        atol, found = self._atol, copy.copy(self)
        for other in self.more_noise():
            again = _Leaf([self.exact.reshape(torch.as_tensor(other).shape), other], (), *self._given)
            atol, found.norm = torch.maximum(atol, again._atol), max(found.norm, again.norm)
        found._atol, self.more_noise = atol, tuple
        return found

    def _is_off_in_few_places(self, value: Tensor, slack: float) -> bool:
        given = value.reshape(self._table), self.exact, self._atol, self._rtol, slack
        special, beyond, _ = reductions.by(*given[:2]).deviations(*given)
        shape = self.exact.shape
        few = _FEW * (max(shape) if min(shape) >= _ROWS else 1)
        return not special and beyond <= max(few, _FEW_OFF * value.numel())

    def _within(self, value: Tensor, slack: float) -> bool:
        """Whether a tensor of any shape and dtype, with as many elements, holds the values."""
        value = value.reshape(self._table)
        one_pass = reductions.by(self.exact, value)
        for own_size in (False,) if "_atol" in vars(self) else (True, False):  # often bounds by its own size suffice
            atol = self.exact.new_zeros((len(self.exact), 1)) if own_size else self._atol
            count = functools.partial(one_pass.deviations, value, self.exact, atol, self._rtol)
            special, beyond, self.error_square = count(slack)
            if special or math.sqrt(self.error_square) > slack * self.norm:
                return False
            if not beyond or (beyond <= _RARE * value.numel() and not count(_RARE_FACTOR * slack)[1]):
                return True
        return False
