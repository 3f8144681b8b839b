"""Is an output right? Expected values in fp64, and tolerances that follow from the reference's own rounding.

The allowed error is a small multiple of two errors: the reference's own in its precision, and the one that comes from
rounding its inputs once. So any backward stable rewrite passes (an exp2 softmax, another order of summation). The
allowed error is never below a few units in the last place of the output's scale. See judge/README.md, P7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.boundary.shared_tensors import DTYPES, Slot
from drkernel.judge.trusted import reductions
from drkernel.judge.trusted.outputs import OutputTensor, dtype_of, form_of, kind_of, leaves, shape_of
from drkernel.types import Precision

K_NORM, K_MAX = 8.0, 16.0
"""How many times the reference's own error an output may have: in the L2 norm, and at its worst element."""
MAX_TERMS = 2**22
"""Rounding is granted for at most so many terms in a row: 10^5 atomic additions of unlike sizes onto one number err by
that much. Nobody adds 10^8 one by one, and the mean of a few rows must not pass for the mean of all."""
_RARE, _RARE_FACTOR = 1e-3, 32.0
"""At most this proportion of the elements may exceed their bound, by at most this factor: bounds come from random
errors, which are small here and there."""
EPS: dict[Precision, float] = {"ieee": 2.0**-23, "tf32": 2.0**-10, "low": 2.0**-7}
"""Relative rounding step that each precision policy grants."""
_MIN_ROW = 16
"""Rows shorter than this share one tolerance."""
_CHUNK = 2**20
"""Elements that are compared at once in order to describe a mismatch."""
_OTHER_INPUTS = 4.0
"""Bounds that come from another draw of the inputs are wider by this factor."""
_TINY = 1e-300


@dataclass(frozen=True)
class Mismatch:
    """Why an output is wrong, in words for people and in numbers. A verdict's evidence has them under these names."""

    reason: str
    """wrong_structure | wrong_type | wrong_shape | wrong_dtype | wrong_values | not_finite | expanded |
    edits_input | aliases_input"""
    text: str
    output: str = ""
    index: tuple[int, ...] = ()
    expected: float | None = None
    got: float | None = None
    share: float | None = None
    """The proportion of elements beyond the tolerance."""
    error: float | None = None
    """The largest absolute difference."""


class Expected:
    """The expected outputs of one call, with their tolerances.

    Args:
        exact: the reference's output in fp64 (a tree of tensors and scalars).
        rounded: the same in the task's own precision; it also sets types, dtypes and shapes.
        jittered: the fp64 output when inputs and weights are rounded once more, at random.
        eps: relative rounding step of the precision policy.
        terms: how many terms enter one output element, roughly; rounding grows with its square root.

    Raises:
        ValueError: the reference's outputs have another structure or shape in fp64.
    """

    edits = False
    """Whether the reference changes its inputs."""
    aliases = False
    """Whether an output of the reference lies in an input's memory."""

    def __init__(self, exact: Any, rounded: Any, jittered: Any, eps: float, terms: float):
        self.rounded = rounded
        self._rounded = list(leaves(rounded))
        trees = [dict(leaves(tree)) for tree in (exact, jittered)]
        if any(tree.keys() != dict(self._rounded).keys() for tree in trees):
            raise ValueError("the reference's outputs have another structure in fp64")
        self._leaves = {path: _Leaf(trees[0][path], value, trees[1][path], eps, terms) for path, value in self._rounded}

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
        """Whether the tolerance can tell right from wrong: it is small beside the output, and discrete values do not
        depend on rounding."""
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
            if problem := self._leaves[path].check(path, value, found[path], slack):
                return problem
        return None

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
        """Whether each floating output is, in some shape, one of these values."""
        sizes = [
            (leaf, value.numel())
            for leaf, (_, value) in zip(self._leaves.values(), self._rounded, strict=True)
            if _is_float(value) and isinstance(value, Tensor)
        ]
        return bool(sizes) and all(any(v.numel() == n and leaf.equals(v) for v in values) for leaf, n in sizes)


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

    def __init__(self, exact: Any, rounded: Any, jittered: Any, eps: float, terms: float):
        if not _is_float(rounded):
            self.finite = self.same_nonfinite = True
            self.well_conditioned = _same(exact, rounded) and _same(exact, jittered)
            return
        device = exact.device if isinstance(exact, Tensor) else "cpu"
        exact, near, jittered = (torch.as_tensor(v, device=device) for v in (exact, rounded, jittered))
        if not exact.shape == near.shape == jittered.shape:
            raise ValueError("the reference's outputs have another shape in fp64")
        self._table = _table(exact.shape)
        self.exact, near, jittered = (t.reshape(self._table) for t in (exact.double(), near, jittered.double()))
        row_squares, row_errors, numbers = reductions.by(self.exact, near, jittered).statistics(
            self.exact, near, jittered
        )
        *squares, self.reference_max, disagreeing, nonfinite = numbers
        self.reference_norm, rounding_error, jitter_error = map(math.sqrt, squares)
        self.finite, self.same_nonfinite = nonfinite == 0, disagreeing == 0
        step = torch.finfo(rounded.dtype).eps if isinstance(rounded, Tensor) else 0.0
        relative = max(eps * math.sqrt(min(terms, MAX_TERMS)), step)
        self.norm = K_NORM * max(relative * self.reference_norm, rounding_error, jitter_error)
        least = 1e-3 * self.reference_norm / math.sqrt(max(1, exact.numel()))
        row_rms = (row_squares / self._table[1]).sqrt().clamp_min(least)
        if len(row_rms):  # a row whose own errors are small by chance may have what rows of its size usually have
            row_errors = torch.maximum(row_errors, row_rms * (row_errors / row_rms.clamp_min(_TINY)).median())
        self._atol, self._rtol = K_MAX * torch.maximum(row_errors, relative * row_rms), K_MAX * relative
        self.well_conditioned = jitter_error <= max(1e-2, 4 * relative) * self.reference_norm

    def max_error(self) -> float:
        """The largest error that any element may have."""
        return max(float(self._atol.max()), self._rtol * self.reference_max) if self._atol.numel() else 0.0

    def check(self, path: str, rounded: Any, actual: Any, slack: float) -> Mismatch | None:
        if isinstance(rounded, Tensor) != isinstance(actual, OutputTensor):
            return Mismatch("wrong_type", f"{path} is {kind_of(actual)}, expected {kind_of(rounded)}", path)
        if not isinstance(rounded, Tensor):
            return self._check_scalar(path, rounded, actual, slack)
        value = actual.value
        if value.shape != rounded.shape:
            return Mismatch("wrong_shape", f"{path} has shape {shape_of(value)}, expected {shape_of(rounded)}", path)
        if value.dtype != rounded.dtype:
            return Mismatch("wrong_dtype", f"{path} is {dtype_of(value)}, expected {dtype_of(rounded)}", path)
        if actual.expanded and not _expanded(rounded):
            return Mismatch("expanded", f"{path} repeats one value with stride 0", path)
        if _is_float(rounded):
            return self._check_values(path, value, slack)
        if torch.equal(value, rounded):
            return None
        rows = value.reshape(1, -1), rounded.reshape(1, -1)
        return _mismatch("wrong_values", path, value.shape, 0, *rows, rows[0] != rows[1], True)

    def fits(self, path: str, rounded: Any, actual: Any) -> bool:
        if (
            isinstance(rounded, Tensor)
            and isinstance(actual, OutputTensor)
            and _is_float(rounded)
            and _shape_and_dtype(actual.value) == _shape_and_dtype(rounded)
        ):
            return self._within(actual.value, 1.0)
        return self.check(path, rounded, actual, 1.0) is None

    def equals(self, value: Tensor) -> bool:
        """Whether a tensor of any shape and dtype holds the values."""
        return self._within(value, 1.0)

    def _check_scalar(self, path: str, rounded: Any, actual: Any, slack: float) -> Mismatch | None:
        if type(rounded) is not type(actual):
            return Mismatch("wrong_type", f"{path} is {kind_of(actual)}, expected {kind_of(rounded)}", path)
        if isinstance(rounded, float):
            value = torch.tensor(actual, dtype=torch.float64, device=self.exact.device)
            return self._check_values(path, value, slack)
        if actual == rounded:
            return None
        return Mismatch("wrong_values", f"{path} is {actual!r}, expected {rounded!r}", path)

    def _check_values(self, path: str, value: Tensor, slack: float) -> Mismatch | None:
        if self._within(value, slack):
            return None
        table, rows = value.reshape(self._table), max(1, _CHUNK // max(1, self._table[1]))
        for first in range(0, len(table), rows):  # a large output is not looked at as a whole to show one place
            part = slice(first, first + rows)
            bounds = slack * self._atol[part], slack * self._rtol
            special, beyond, error = reductions.deviating(table[part], self.exact[part], *bounds)
            last = part.stop >= len(table)
            for reason, bad in (("not_finite", special), ("wrong_values", beyond)):
                if bool(bad.any()):
                    return _mismatch(
                        reason, path, value.shape, first, table[part], self.exact[part], bad, last and not first
                    )
        return _mismatch(  # no element is beyond its bound, but the norm of all errors is: show the last chunk's worst
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


def _mismatch(
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


def _table(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns: rows are those of the last dimension, and where these are short all is one row."""
    size = math.prod(shape)
    columns = shape[-1] if shape and shape[-1] >= _MIN_ROW else max(1, size)
    return size // columns, columns


def _is_float(value: Any) -> bool:
    return value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, float)


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape and torch.equal(first, second)
    return first == second


def _shape_and_dtype(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _expanded(tensor: Tensor) -> bool:
    return any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))
