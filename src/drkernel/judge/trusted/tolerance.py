"""Is an answer right? Expected values in fp64, and tolerances that follow from the reference's own rounding.

Source: reference/judging.md 3.2.5. The error that is allowed is a small multiple of what the reference itself errs in
its own precision, and of what rounding its inputs once would change (so that any backward stable rewrite passes: an
exp2 softmax, another order of summation), and never below a few units in the last place of the output's scale.
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
from drkernel.types import Precision

K_NORM, K_MAX = 8.0, 16.0
"""How many times the reference's own error an answer may have, in the L2 norm and at its worst element."""
DEEPEST = 2**22
"""Rounding is granted for so many terms in a row at most: 10^5 atomic additions of unlike sizes onto one number err by
that much. Nobody adds 10^8 one by one, and the mean of a few rows must not pass for the mean of all."""
_RARE, _TAIL = 1e-3, 32.0
"""So few elements may err by so much more: the errors that bounds come from are random, and small here and there."""
UNIT: dict[Precision, float] = {"ieee": 2.0**-23, "tf32": 2.0**-10, "low": 2.0**-7}
"""Relative rounding step that each precision policy grants."""
_ROW, _SHOWN = 16, 2**20
_AGAIN = 4.0
"""Bounds that come from another draw of the inputs are wider by this factor."""
_TINY = 1e-300


@dataclass(frozen=True)
class Mismatch:
    """Why an answer is wrong, in words for people and in numbers."""

    reason: str
    """wrong_structure | wrong_type | wrong_shape | wrong_dtype | wrong_values | not_finite | expanded |
    edits_input | aliases_input"""
    text: str
    output: str = ""
    index: tuple[int, ...] = ()
    expected: float | None = None
    got: float | None = None
    share: float | None = None
    """Share of elements beyond the tolerance."""
    error: float | None = None
    """Largest absolute difference."""


@dataclass(frozen=True)
class Got:
    """One output tensor of a submission, already in private memory."""

    value: Tensor
    expanded: bool = False
    shares: bool = False


class Expected:
    """The right answer to one call.

    Args:
        exact: the reference's output in fp64 (a tree of tensors and scalars).
        rounded: the same in the task's own precision; it also sets types, dtypes and shapes.
        shaken: the fp64 output when inputs and weights are rounded once more, at random.
        unit: relative rounding step of the precision policy.
        depth: config that enter one output element, roughly; rounding grows with its square root.
    """

    edits = False
    """Whether the reference changes its inputs."""
    aliases = False
    """Whether an output of the reference lies in an input's memory."""

    def __init__(self, exact: Any, rounded: Any, shaken: Any, unit: float, depth: float):
        self.rounded = rounded
        self.leaves = list(leaves(rounded))
        trees = [dict(leaves(tree)) for tree in (exact, shaken)]
        if any(tree.keys() != dict(self.leaves).keys() for tree in trees):
            raise ValueError("the reference's outputs have another structure in fp64")
        self._parts = {path: _Leaf(trees[0][path], value, trees[1][path], unit, depth) for path, value in self.leaves}

    @property
    def finite(self) -> bool:
        return all(part.finite for part in self._parts.values())

    @property
    def usable(self) -> bool:
        """Whether NaN and infinities, if any, lie where they lie in fp64."""
        return all(part.usable for part in self._parts.values())

    @property
    def sharp(self) -> bool:
        """Whether the tolerance can tell right from wrong: it is small beside the output, and exact parts agree."""
        return all(part.sharp for part in self._parts.values())

    def check(self, tree: Any, tolerance: float = 1.0) -> Mismatch | None:
        """Compares an answer, a tree whose tensors are `Got`. None if it is right.

        Args:
            tolerance: factor on the allowed error; 10 asks whether an answer is at least nearly right.
        """
        found = dict(leaves(tree))
        if found.keys() != self._parts.keys() or _form(tree) != _form(self.rounded):
            return Mismatch("wrong_structure", f"returned {_form(tree)}, expected {_form(self.rounded)}")
        for path, value in self.leaves:
            if problem := self._parts[path].check(path, value, found[path], tolerance):
                return problem
        return None

    def fits(self, tree: Any) -> bool:
        """Whether an answer is right, without saying why not."""
        found = dict(leaves(tree))
        if found.keys() != self._parts.keys() or _form(tree) != _form(self.rounded):
            return False
        return all(self._parts[path].fits(path, value, found[path]) for path, value in self.leaves)

    def tolerance(self) -> Tolerance:
        """How far other answers to inputs of the same kind may be from the reference's own."""
        floats = [p for p, (_, leaf) in zip(self._parts.values(), self.leaves, strict=True) if _is_float(leaf)]
        return Tolerance(
            norm=_AGAIN * max((p.norm for p in floats), default=0.0),
            most=_AGAIN * max((p.most() for p in floats), default=0.0),
            size=max((p.size for p in floats), default=0.0),
            largest=max((p.largest for p in floats), default=0.0),
        )

    def is_among(self, values: list[Tensor]) -> bool:
        """Whether each floating output is, in some shape, one of these values."""
        parts = [
            (part, leaf.numel())
            for part, (_, leaf) in zip(self._parts.values(), self.leaves, strict=True)
            if _is_float(leaf) and isinstance(leaf, Tensor)
        ]
        return bool(parts) and all(any(v.numel() == n and part.equals(v) for v in values) for part, n in parts)


@dataclass(frozen=True)
class Tolerance:
    """Bounds for many answers at once, on raw bytes: cheaper than `Expected`, which needs the reference in fp64."""

    norm: float
    """L2 norm of the difference of one answer to inputs like those that the bounds come from."""
    most: float
    """Largest difference."""
    size: float
    largest: float
    """L2 norm and largest value of the answer that the bounds come from: they grow in proportion."""

    def check(self, right: Tensor, got: Tensor, slots: Sequence[Slot], start: int, calls: int) -> str | None:
        """What is wrong with the answers of several calls, or None.

        Args:
            right, got: uint8 [n], the areas with all outputs of the reference and of the submission, in one layout.
            slots: where the outputs lie, counted from `start` bytes before the areas.
        """
        kinds = {DTYPES[slot.dtype] for slot in slots}
        if len(kinds) == 1 and (kind := kinds.pop()).is_floating_point:
            return self._floats(right.view(kind), got.view(kind), calls)
        for slot in slots:
            kind = DTYPES[slot.dtype]
            one, other = (t[slot.offset - start :][: slot.nbytes].view(kind) for t in (right, got))
            problem = self._floats(one, other, 1) if kind.is_floating_point else _differ(one, other)
            if problem:
                return problem
        return None

    def compare(self, right: Any, answer: Any) -> str | None:
        """What is wrong with one answer, a tree whose tensors are `Got`, or None."""
        theirs, ours = leaves(right), leaves(answer)
        if [path for path, _ in theirs] != [path for path, _ in ours]:
            return f"returned {_form(answer)}, expected {_form(right)}"
        for (path, value), (_, got) in zip(theirs, ours, strict=True):
            if not isinstance(value, Tensor):
                fine = type(got) is type(value) and (got == value or abs(got - value) <= self.most)
                problem = None if fine else f"{path} is {got!r}, expected {value!r}"
            elif not isinstance(got, Got) or (got.value.shape, got.value.dtype) != (value.shape, value.dtype):
                problem = f"{path} has another form than {_shape(value)} {_dtype(value)}"
            elif value.is_floating_point():
                problem = self._floats(value.reshape(-1), got.value.reshape(-1), 1)
            else:
                problem = _differ(value, got.value)
            if problem:
                return problem
        return None

    def _floats(self, right: Tensor, got: Tensor, calls: int) -> str | None:
        if not right.numel():
            return None
        error_most, largest, *squares = reductions.by(right, got).differences(right, got)
        error_norm, size = map(math.sqrt, squares)
        pairs = (size / calls**0.5, self.size), (largest, self.largest)
        growth = [now / then if then else 1.0 for now, then in pairs]
        norm, most = (bound * max(1.0, g) for bound, g in zip((self.norm * calls**0.5, self.most), growth, strict=True))
        if error_norm <= norm and error_most <= most:
            return None
        return f"an output differs by {error_most:.3g}, at most {most:.3g} was expected"


def _differ(right: Tensor, got: Tensor) -> str | None:
    """Integers may differ where rounding decides, in a thousandth of the places."""
    wrong = int((right != got).sum())
    return f"an output differs in {wrong} places" if wrong > max(1, right.numel() // 1000) else None


class _Leaf:
    """One output: its fp64 value and how far an answer may be from it."""

    def __init__(self, exact: Any, rounded: Any, shaken: Any, unit: float, depth: float):
        self.rounded = rounded
        if not _is_float(rounded):
            self.finite = self.usable = True
            self.sharp = _same(exact, rounded) and _same(exact, shaken)
            return
        device = exact.device if isinstance(exact, Tensor) else "cpu"
        exact, near, shaken = (torch.as_tensor(v, device=device) for v in (exact, rounded, shaken))
        if not exact.shape == near.shape == shaken.shape:
            raise ValueError("the reference's outputs have another shape in fp64")
        self._table = _table(exact.shape)
        self.exact, near, shaken = (t.reshape(self._table) for t in (exact.double(), near, shaken.double()))
        power, worst, numbers = reductions.by(self.exact, near, shaken).statistics(self.exact, near, shaken)
        *squares, self.largest, odd, special = numbers
        self.size, near_error, shaken_error = map(math.sqrt, squares)
        self.finite, self.usable = special == 0, odd == 0
        step = torch.finfo(rounded.dtype).eps if isinstance(rounded, Tensor) else 0.0
        unit = max(unit * math.sqrt(min(depth, DEEPEST)), step)
        self.norm = K_NORM * max(unit * self.size, near_error, shaken_error)
        usual = (power / self._table[1]).sqrt().clamp_min(1e-3 * self.size / math.sqrt(max(1, exact.numel())))
        if len(usual):  # a row whose own errors are small by chance may have what rows of its size usually have
            worst = torch.maximum(worst, usual * (worst / usual.clamp_min(_TINY)).median())
        self._floor, self._slope = K_MAX * torch.maximum(worst, unit * usual), K_MAX * unit
        self.sharp = shaken_error <= max(1e-2, 4 * unit) * self.size

    def most(self) -> float:
        """The largest difference that any element may have."""
        return max(float(self._floor.max()), self._slope * self.largest) if self._floor.numel() else 0.0

    def check(self, path: str, rounded: Any, got: Any, tolerance: float) -> Mismatch | None:
        if isinstance(rounded, Tensor) != isinstance(got, Got):
            return Mismatch("wrong_type", f"{path} is {_kind(got)}, expected {_kind(rounded)}", path)
        if not isinstance(rounded, Tensor):
            return self._check_scalar(path, rounded, got, tolerance)
        value = got.value
        if value.shape != rounded.shape:
            return Mismatch("wrong_shape", f"{path} has shape {_shape(value)}, expected {_shape(rounded)}", path)
        if value.dtype != rounded.dtype:
            return Mismatch("wrong_dtype", f"{path} is {_dtype(value)}, expected {_dtype(rounded)}", path)
        if got.expanded and not _expanded(rounded):
            return Mismatch("expanded", f"{path} repeats one value with stride 0", path)
        if _is_float(rounded):
            return self._check_values(path, value, tolerance)
        if torch.equal(value, rounded):
            return None
        rows = value.reshape(1, -1), rounded.reshape(1, -1)
        return _mismatch("wrong_values", path, value.shape, 0, *rows, rows[0] != rows[1], True)

    def fits(self, path: str, rounded: Any, got: Any) -> bool:
        same = isinstance(got, Got) and _is_float(rounded) and (got.value.shape, got.value.dtype)
        if isinstance(rounded, Tensor) and same == (rounded.shape, rounded.dtype):
            return self._fine(got.value, 1.0)
        return self.check(path, rounded, got, 1.0) is None

    def equals(self, value: Tensor) -> bool:
        """Whether a tensor of any shape and dtype holds the values."""
        return self._fine(value, 1.0)

    def _check_scalar(self, path: str, rounded: Any, got: Any, tolerance: float) -> Mismatch | None:
        if type(rounded) is not type(got):
            return Mismatch("wrong_type", f"{path} is {_kind(got)}, expected {_kind(rounded)}", path)
        if isinstance(rounded, float):
            return self._check_values(path, torch.tensor(got, dtype=torch.float64, device=self.exact.device), tolerance)
        return None if got == rounded else Mismatch("wrong_values", f"{path} is {got!r}, expected {rounded!r}", path)

    def _check_values(self, path: str, value: Tensor, tolerance: float) -> Mismatch | None:
        if self._fine(value, tolerance):
            return None
        table, rows = value.reshape(self._table), max(1, _SHOWN // max(1, self._table[1]))
        for first in range(0, len(table), rows):  # a large answer is not looked at as a whole to show one place
            part = slice(first, first + rows)
            bounds = tolerance * self._floor[part], tolerance * self._slope
            special, beyond, error = reductions.deviant(table[part], self.exact[part], *bounds)
            last = part.stop >= len(table)
            for reason, bad in (("not_finite", special), ("wrong_values", beyond)):
                if bool(bad.any()):
                    return _mismatch(
                        reason, path, value.shape, first, table[part], self.exact[part], bad, last and not first
                    )
        return _mismatch(
            "wrong_values", path, value.shape, first, table[part], self.exact[part], error >= error.max(), False
        )

    def _fine(self, value: Tensor, tolerance: float) -> bool:
        """Whether a tensor of any shape and dtype, with as many elements, holds the values."""
        value = value.reshape(self._table)
        one_pass = reductions.by(self.exact, value)
        count = lambda wide: one_pass.deviations(value, self.exact, wide * self._floor, wide * self._slope)
        special, beyond, square = count(tolerance)
        if special or math.sqrt(square) > tolerance * self.norm:
            return False
        return not beyond or (beyond <= _RARE * value.numel() and not count(_TAIL * tolerance)[1])


def leaves(tree: Any, path: str = "output") -> list[tuple[str, Any]]:
    """The leaves of a tree of lists, tuples and dicts, with where they are: `output[1]`, `output['loss']`."""
    if isinstance(tree, (list, tuple)):
        return [leaf for i, part in enumerate(tree) for leaf in leaves(part, f"{path}[{i}]")]
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree, key=str) for leaf in leaves(tree[key], f"{path}[{key!r}]")]
    return [(path, tree)]


def _form(tree: Any) -> str:
    if isinstance(tree, (list, tuple)):
        return f"a sequence of {len(tree)}"
    return f"a dict with {sorted(map(str, tree))}" if isinstance(tree, dict) else _kind(tree)


def _kind(value: Any) -> str:
    return "a tensor" if isinstance(value, (Tensor, Got)) else "None" if value is None else f"a {type(value).__name__}"


def _mismatch(
    reason: str, path: str, shape: Sequence[int], first: int, value: Tensor, expected: Tensor, bad: Tensor, whole: bool
) -> Mismatch:
    """Describes the worst element among the bad ones.

    Args:
        shape: of the output that the rows `value` and `expected` [r, C] are from, beginning with row `first`.
        whole: whether they are all of it, so that the share of bad ones is known.
    """
    gap = torch.where(bad, torch.nan_to_num((value.double() - expected.double()).abs(), nan=math.inf), -1.0)
    place = int(gap.reshape(-1).argmax())
    got, right, error = (float(t.reshape(-1)[place]) for t in (value, expected, gap))
    index = []
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
    columns = shape[-1] if shape and shape[-1] >= _ROW else max(1, size)
    return size // columns, columns


def _is_float(value: Any) -> bool:
    return value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, float)


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape and torch.equal(first, second)
    return first == second


def _expanded(tensor: Tensor) -> bool:
    return any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
