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

from drkernel.judge.exchange import DTYPES, Slot
from drkernel.types import Precision

K_NORM, K_MAX = 8.0, 16.0
"""How many times the reference's own error an answer may have, in the L2 norm and at its worst element."""
UNIT: dict[Precision, float] = {"ieee": 2.0**-23, "tf32": 2.0**-10, "low": 2.0**-7}
"""Relative rounding step that each precision policy grants."""
_ROW = 16
_AGAIN = 4.0
"""Bounds that come from another draw of the inputs are wider by this factor."""


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
        depth: terms that enter one output element, roughly; rounding grows with its square root.
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

    def tolerance(self) -> Tolerance:
        """How far other answers to inputs of the same kind may be from the reference's own."""
        floats = [p for p, (_, leaf) in zip(self._parts.values(), self.leaves, strict=True) if _is_float(leaf)]
        size = lambda norm: max((float(norm(p.exact)) for p in floats if p.exact.numel()), default=0.0)
        return Tolerance(
            norm=_AGAIN * max((p.norm for p in floats), default=0.0),
            most=_AGAIN * max((float(p.most.max()) for p in floats if p.most.numel()), default=0.0),
            size=size(lambda exact: torch.nan_to_num(exact, 0.0, 0.0, 0.0).norm()),
            largest=size(lambda exact: torch.nan_to_num(exact, 0.0, 0.0, 0.0).abs().max()),
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

    def _floats(self, right: Tensor, got: Tensor, calls: int) -> str | None:
        wide = torch.float64 if right.dtype == torch.float64 else torch.float32
        right, got = right.to(wide), got.to(wide)
        same = (right == got) | (right.isnan() & got.isnan())
        error = torch.where(same, 0.0, (got - right).abs())
        plain = torch.nan_to_num(right, 0.0, 0.0, 0.0)
        error_norm, error_most, size, largest = torch.stack(
            [error.norm(), error.max(), plain.norm(), plain.abs().max()]
        ).tolist()
        growth = [now / then if then else 1.0 for now, then in ((size / calls**0.5, self.size), (largest, self.largest))]
        norm, most = (bound * max(1.0, g) for bound, g in zip((self.norm * calls**0.5, self.most), growth, strict=True))
        if error_norm <= norm and error_most <= most:
            return None
        return f"a timed call's output differs by {error_most:.3g}, at most {most:.3g} was expected"


def _differ(right: Tensor, got: Tensor) -> str | None:
    """Integers may differ where rounding decides, in a thousandth of the places."""
    wrong = int((right != got).sum())
    return f"a timed call's output differs in {wrong} places" if wrong > max(1, right.numel() // 1000) else None


class _Leaf:
    """One output: its fp64 value and how far an answer may be from it."""

    def __init__(self, exact: Any, rounded: Any, shaken: Any, unit: float, depth: float):
        self.rounded = rounded
        if not _is_float(rounded):
            self.finite = self.usable = True
            self.sharp = _same(exact, rounded) and _same(exact, shaken)
            return
        self.exact, near, shaken = (torch.as_tensor(v).double() for v in (exact, rounded, shaken))
        self.finite = bool(near.isfinite().all()) and bool(self.exact.isfinite().all())
        self.usable = bool((near.isfinite() == self.exact.isfinite()).all())
        unit = max(unit * math.sqrt(depth), torch.finfo(rounded.dtype).eps if isinstance(rounded, Tensor) else 0.0)
        errors = [torch.nan_to_num((other - self.exact).abs(), nan=0.0, posinf=0.0) for other in (near, shaken)]
        size = torch.nan_to_num(self.exact, nan=0.0, posinf=0.0, neginf=0.0).abs()
        self.norm = K_NORM * max(unit * float(size.norm()), *(float(error.norm()) for error in errors))
        scale = torch.maximum(torch.maximum(size, _rows(size, "rms")), 1e-3 * _rms(size))
        worst = torch.maximum(*(_rows(error, "max") for error in errors))
        self.most = K_MAX * torch.maximum(worst, unit * scale)
        self.sharp = float(errors[1].norm()) <= max(1e-2, 4 * unit) * float(size.norm())

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
            return self._check_values(path, value.double(), tolerance)
        if torch.equal(value, rounded):
            return None
        return _mismatch("wrong_values", path, value, rounded, value != rounded)

    def equals(self, value: Tensor) -> bool:
        """Whether a tensor of any shape and dtype holds the values."""
        return self._check_values("", value.double().reshape(self.exact.shape), 1.0) is None

    def _check_scalar(self, path: str, rounded: Any, got: Any, tolerance: float) -> Mismatch | None:
        if type(rounded) is not type(got):
            return Mismatch("wrong_type", f"{path} is {_kind(got)}, expected {_kind(rounded)}", path)
        if isinstance(rounded, float):
            return self._check_values(path, torch.tensor(got, dtype=torch.float64), tolerance)
        return None if got == rounded else Mismatch("wrong_values", f"{path} is {got!r}, expected {rounded!r}", path)

    def _check_values(self, path: str, value: Tensor, tolerance: float) -> Mismatch | None:
        finite = self.exact.isfinite()
        same_special = (value == self.exact) | (value.isnan() & self.exact.isnan())
        special = torch.where(finite, ~value.isfinite(), ~same_special)
        if bool(special.any()):
            return _mismatch("not_finite", path, value, self.exact, special)
        error = torch.where(finite, (value - self.exact).abs(), 0.0)
        within = error <= tolerance * self.most
        if not bool(within.all()):
            return _mismatch("wrong_values", path, value, self.exact, ~within)
        if float(error.norm()) <= tolerance * self.norm:
            return None
        return _mismatch("wrong_values", path, value, self.exact, error * value.numel() ** 0.5 > tolerance * self.norm)


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


def _mismatch(reason: str, path: str, value: Tensor, expected: Tensor, bad: Tensor) -> Mismatch:
    """Describes the worst element among the bad ones."""
    bad = bad if bool(bad.any()) else torch.ones_like(bad)
    gap = torch.where(bad, torch.nan_to_num((value.double() - expected.double()).abs(), nan=math.inf), -1.0)
    place = int(gap.reshape(-1).argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), value.shape)) if value.dim() else ()
    got, right = (float(t.reshape(-1)[place]) for t in (value, expected))
    share = float(bad.double().mean())
    where = f"{path}[{', '.join(map(str, index))}]" if index else path
    text = f"{where} is {got:.6g}, expected {right:.6g}; {100 * share:.3g}% of {value.numel()} elements are wrong"
    return Mismatch(reason, text, path, index, right, got, share, float(gap.max()))


def _rows(values: Tensor, kind: str) -> Tensor:
    """The rms or the maximum of each row of the last dimension (of all where rows are short), broadcastable."""
    if values.dim() == 0 or values.shape[-1] < _ROW:
        whole = _rms(values) if kind == "rms" else values.max() if values.numel() else values.new_zeros(())
        return whole.expand_as(values)
    row = values.square().mean(-1, keepdim=True).sqrt() if kind == "rms" else values.amax(-1, keepdim=True)
    return row.expand_as(values)


def _rms(values: Tensor) -> Tensor:
    return values.square().mean().sqrt() if values.numel() else values.new_zeros(())


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
