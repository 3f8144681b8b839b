"""Is an output right? Expected values in fp64, and tolerances that follow from the reference's own rounding.

An output may be as far from the exact one as a small multiple of two errors: the reference's own in its precision, and
that of a run with other rounding in every operator (`rounding.Noise`). Both are taken at that output and on these
inputs. So an honest kernel with another order of summation passes, and a long sum elsewhere in the task grants nothing.
Outputs of 16 bits are rounded to them a few times at most. See judge/README.md, P7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.boundary.shared_tensors import DTYPES, Slot
from drkernel.judge.trusted import reductions
from drkernel.judge.trusted.lowering import FEW, Bounds, Lowering, explained
from drkernel.judge.trusted.mismatch import Mismatch, describe
from drkernel.judge.trusted.outputs import OutputTensor, dtype_of, expanded, form_of, kind_of, leaves, same, shape_of
from drkernel.judge.trusted.rounding import EPS, UNIT
from drkernel.types import Precision

K_OWN, K_NOISE, K_MAX = 2.0, 4.0, 6.0
"""How many times the error an output may have: in the L2 norm, the reference's own and that of noise; at the worst
element of its row, the larger of both."""
K_MAX_16 = 4.0
"""The last where outputs have 16 bits: their own rounding is most of the error, and it does not add up."""
_ROUNDINGS_16 = 1.5
"""How many steps of a 16-bit format an element may be off: three roundings, each half a step."""
_FLOOR = 1.0
"""Errors are at least so many times the unit of the precision policy (`rounding.UNIT`)."""
_RARE, _RARE_FACTOR = 1e-3, 8.0
"""At most this proportion of the elements may exceed their bound, by at most this factor: bounds come from random
errors, which are small here and there."""
_MIN_ROW, _ALONE = 16, 2**16
"""Shorter rows are none (`_table`); so many elements may have tolerances of their own."""
_CHUNK = 2**20
"""Elements that are compared at once in order to describe a mismatch."""
_OTHER_INPUTS = 3.0
"""Bounds that come from another draw of the inputs, and are for the distance from the rounded reference, are wider by
this factor."""
_BESIDE, _TINY, _RANGE = 1e-9, 1e-300, 2.0**96
"""What is so small beside the whole output is nothing; what is so large is near the end of fp32."""


class Expected:
    """The expected outputs of one call, with their tolerances.

    Args:
        exact: the reference's output in fp64 (a tree of tensors and scalars).
        rounded: the same in the task's own precision; it also sets types, dtypes and shapes.
        noisy: the output with other rounding in every operator, at random; several where outputs are few.
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

    def __init__(
        self,
        exact: Any,
        rounded: Any,
        noisy: Sequence[Any],
        precision: Precision = "ieee",
        lowered: Iterable[tuple[str, Any]] = (),
        seed: int = 0,
    ):
        self.rounded = rounded
        self._rounded = list(leaves(rounded))
        trees = [dict(leaves(tree)) for tree in (exact, *noisy)]
        if any(tree.keys() != dict(self._rounded).keys() for tree in trees):
            raise ValueError("the reference's outputs have another structure in fp64")
        self._leaves = {
            path: _Leaf(trees[0][path], value, [tree[path] for tree in trees[1:]], precision)
            for path, value in self._rounded
        }
        for name, tree in lowered:
            for path, value in leaves(tree):
                self._leaves[path].add_lowering(name, value, seed)

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

    def check(self, tree: Any, slack: float = 1.0) -> Mismatch | None:
        """Compares outputs, a tree whose tensors are `OutputTensor`. None if they are right.

        Args:
            slack: factor on the allowed error; 10 asks whether outputs are at least nearly right.
        """
        found = dict(leaves(tree))
        if found.keys() != self._leaves.keys() or form_of(tree) != form_of(self.rounded):
            return Mismatch("wrong_structure", f"returned {form_of(tree)}, expected {form_of(self.rounded)}")
        for path, value in self._rounded:
            if problem := self._leaves[path].check(path, value, found[path], slack, self._lowered(path), self.chained):
                return problem
        return None

    def _lowered(self, path: str) -> Iterator[tuple[str, Any]]:
        yield from ((name, dict(leaves(tree))[path]) for name, tree in self.lowered_later())

    def fits(self, tree: Any) -> bool:
        """Whether outputs are right, without saying why not."""
        found = dict(leaves(tree))
        if found.keys() != self._leaves.keys() or form_of(tree) != form_of(self.rounded):
            return False
        return all(self._leaves[path].fits(path, value, found[path]) for path, value in self._rounded)

    def tolerance(self) -> Tolerance:
        """How far outputs may be from the reference's own on other inputs of the same kind."""
        floats = [
            leaf for leaf, (_, value) in zip(self._leaves.values(), self._rounded, strict=True) if _is_float(value)
        ]
        return Tolerance(
            norm=_OTHER_INPUTS * max((leaf.norm for leaf in floats), default=0.0),
            max_error=_OTHER_INPUTS * max((leaf.max_error() for leaf in floats), default=0.0),
            reference_norm=max((leaf.reference_norm for leaf in floats), default=0.0),
            reference_max=max((leaf.reference_max for leaf in floats), default=0.0),
        )

    def is_among(self, values: list[Tensor]) -> bool:
        """Whether each output is, in some shape, one of these values. Indices do not count beside floating outputs."""
        pairs = zip(self._leaves.values(), self._rounded, strict=True)
        tensors = [(leaf, value) for leaf, (_, value) in pairs if isinstance(value, Tensor)]
        sought = [(leaf, value) for leaf, value in tensors if _is_float(value)] or tensors
        return bool(sought) and all(
            any(v.numel() == value.numel() and leaf.equals(v, value) for v in values) for leaf, value in sought
        )


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
            elif not isinstance(actual, OutputTensor) or _shape_and_dtype(actual.value) != _shape_and_dtype(value):
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

    def __init__(self, exact: Any, rounded: Any, noisy: Sequence[Any], precision: Precision):
        self._lowerings: list[Lowering] = []
        if not _is_float(rounded):
            self.finite = self.same_nonfinite = True
            self.well_conditioned = all(same(value, rounded) for value in (exact, *noisy))
            return
        device = exact.device if isinstance(exact, Tensor) else "cpu"
        exact, near, *noisy = (torch.as_tensor(v, device=device) for v in (exact, rounded, *noisy))
        if any(value.shape != exact.shape for value in (near, *noisy)):
            raise ValueError("the reference's outputs have another shape in fp64")
        self._table = _table(exact.shape)
        self.exact, near, *noisy = (t.reshape(self._table) for t in (exact.double(), near, *noisy))
        found = [reductions.by(self.exact, near, other).statistics(self.exact, near, other) for other in noisy]
        row_squares, row_errors, numbers = found[0]
        for _, other_rows, other_numbers in found[1:]:
            row_errors = torch.maximum(row_errors, other_rows)
            numbers[2] = max(numbers[2], other_numbers[2])
        *squares, self.reference_max, disagreeing, nonfinite = numbers
        self.reference_norm, own, noise = map(math.sqrt, squares)
        self.finite, self.same_nonfinite = nonfinite == 0, disagreeing == 0
        self._bound(row_squares, row_errors, max(K_OWN * own, K_NOISE * noise), _step(rounded), UNIT[precision])
        in_range = self.reference_max < _RANGE  # else another order of operations may overflow
        self.well_conditioned = in_range and noise <= max(1e-2, 4 * UNIT[precision]) * self.reference_norm

    def _bound(self, row_squares: Tensor, row_errors: Tensor, error: float, step: float, unit: float) -> None:
        """Sets the bounds: of the norm, of an element by its row, and of an element by its own size."""
        narrow = step > 2 * EPS
        k_max = K_MAX_16 if narrow else K_MAX
        least = max(_FLOOR * unit, 0.2 * step)  # rounding once has a fifth of a step, in the mean of all mantissas
        self.norm = max(error, (K_OWN if narrow else K_NOISE) * least * self.reference_norm)
        usual = (row_squares / max(1, self._table[1])).sqrt().clamp_min(_BESIDE * self.reference_norm)
        if len(usual):  # a row whose own errors are small by chance may have what rows of its size usually have
            row_errors = torch.maximum(row_errors, usual * (row_errors / usual.clamp_min(_TINY)).median())
        self._atol = k_max * torch.maximum(row_errors, least * usual)
        self._rtol = max(k_max * unit, _ROUNDINGS_16 * step if narrow else k_max * step)

    def add_lowering(self, name: str, lowered: Any, seed: int) -> None:
        """Notes what the output is in lower precision; only where there are enough elements to tell."""
        if isinstance(lowered, Tensor) and lowered.dtype == torch.float64 and lowered.numel() >= FEW:
            self._lowerings.append(Lowering(name, lowered, self.exact, seed))

    def max_error(self) -> float:
        """The largest error that any element may have."""
        return max(float(self._atol.max()), self._rtol * self.reference_max) if self._atol.numel() else 0.0

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
        if actual.expanded and not expanded(rounded):
            return Mismatch("expanded", f"{path} repeats one value with stride 0", path)
        if _is_float(rounded):
            return self._check_values(path, value, slack, *why)
        if torch.equal(value, rounded):
            return None
        rows = value.reshape(1, -1), rounded.reshape(1, -1)
        return describe("wrong_values", path, value.shape, 0, *rows, rows[0] != rows[1], True)

    def fits(self, path: str, rounded: Any, actual: Any) -> bool:
        if (
            isinstance(rounded, Tensor)
            and isinstance(actual, OutputTensor)
            and _is_float(rounded)
            and _shape_and_dtype(actual.value) == _shape_and_dtype(rounded)
        ):
            return self._within(actual.value, 1.0)
        return self.check(path, rounded, actual, 1.0) is None

    def equals(self, value: Tensor, rounded: Tensor) -> bool:
        """Whether a tensor of any shape and dtype holds the values."""
        if _is_float(rounded):
            return self._within(value, 1.0)
        return torch.equal(value.reshape(-1).to(rounded.dtype), rounded.reshape(-1))

    def _check_scalar(self, path: str, rounded: Any, actual: Any, slack: float) -> Mismatch | None:
        if type(rounded) is not type(actual):
            return Mismatch("wrong_type", f"{path} is {kind_of(actual)}, expected {kind_of(rounded)}", path)
        if isinstance(rounded, float):
            value = torch.tensor(actual, dtype=torch.float64, device=self.exact.device)
            return self._check_values(path, value, slack)
        if actual == rounded:
            return None
        return Mismatch("wrong_values", f"{path} is {actual!r}, expected {rounded!r}", path)

    def _check_values(self, path: str, value: Tensor, slack: float, *why: Any) -> Mismatch | None:
        found = next((low for low in self._lowerings if low.explains(value)), None) if slack == 1.0 else None
        if self._within(value, slack) and not found:
            return None
        problem = self._wrong(path, value, slack)
        bounds = Bounds(self.exact, self.norm, self._atol, self._rtol)
        if slack == 1.0 and why and (explanation := explained(problem, value, bounds, *why)):
            return explanation
        return found.mismatch(path, problem) if found else problem

    def _wrong(self, path: str, value: Tensor, slack: float) -> Mismatch:
        """Describes the worst place of an output that is wrong."""
        table, rows = value.reshape(self._table), max(1, _CHUNK // max(1, self._table[1]))
        for first in range(0, len(table), rows):  # a large output is not looked at as a whole to show one place
            part = slice(first, first + rows)
            bounds = slack * self._atol[part], slack * self._rtol
            special, beyond, error = reductions.deviating(table[part], self.exact[part], *bounds)
            last = part.stop >= len(table)
            for reason, bad in (("not_finite", special), ("wrong_values", beyond)):
                if bool(bad.any()):
                    return describe(
                        reason, path, value.shape, first, table[part], self.exact[part], bad, last and not first
                    )
        return describe(  # no element is beyond its bound, but the norm of all errors is: show the last chunk's worst
            "wrong_values", path, value.shape, first, table[part], self.exact[part], error >= error.max(), False
        )

    def _within(self, value: Tensor, slack: float) -> bool:
        """Whether a tensor of any shape and dtype, with as many elements, holds the values."""
        value = value.reshape(self._table)
        one_pass = reductions.by(self.exact, value)
        count = lambda factor: one_pass.deviations(value, self.exact, factor * self._atol, factor * self._rtol)
        special, beyond, square = count(slack)
        if special or math.sqrt(square) > slack * self.norm:
            return False
        return not beyond or (beyond <= _RARE * value.numel() and not count(_RARE_FACTOR * slack)[1])


def _table(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns, where the elements of a row are alike, so that they share a tolerance.

    Rows are those of the last dimension. Where that is short or the only one, elements stand for rows of the inputs,
    and each is one of its own; where there are too many of these, rows are those of the first dimension.
    """
    size = math.prod(shape)
    if stands_alone(shape):
        return size, 1
    wide = len(shape) > 1 and shape[-1] >= _MIN_ROW
    columns = shape[-1] if wide else size // shape[0] if len(shape) > 1 and size >= _MIN_ROW * shape[0] > 0 else size
    return size // max(1, columns), columns


def stands_alone(shape: Sequence[int]) -> bool:
    """Whether each element of an output has a tolerance of its own, which needs several runs with noise."""
    return math.prod(shape) <= _ALONE and not (len(shape) > 1 and shape[-1] >= _MIN_ROW)


def _step(value: Any) -> float:
    """Relative distance of two numbers of an output's format."""
    return torch.finfo(value.dtype).eps if isinstance(value, Tensor) else 0.0


def _is_float(value: Any) -> bool:
    return value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, float)


def _shape_and_dtype(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype
