"""Thresholds of a reference that no usual case gets past: a norm is clipped above one, and is never below it.

A kernel that leaves out such a clamp, or one side of a `where`, is right on all values that stay on the other side.
So each clamp and each comparison of the reference is watched while it runs on the usual values. Where one side is never
reached, values are tried that are far smaller or far larger than the given ones. What keeps a divisor from zero is a
threshold, too: beside usual values it vanishes.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.trusted.cases import regimes, structure
from drkernel.judge.trusted.cases.regimes import PURE, SCALED
from drkernel.judge.trusted.cases.structure import Source
from drkernel.judge.trusted.sizes import shrink
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError

Site = tuple[str, int]
"""An operator by its name, and how often it was called before."""

_BOUNDS = {"clamp": (1, 2), "hardtanh": (1, 2), "clamp_min": (1, None), "clamp_max": (None, 1)}
"""Which arguments of an operator are its least and its greatest value."""
_NAMES = ("min", "max"), ("min_val", "max_val")
_COMPARISONS = {"gt", "ge", "lt", "le", "maximum", "minimum", "fmax", "fmin"}


_FUSED = {
    "huber_loss": (3, "delta", 1.0), "smooth_l1_loss": (3, "beta", 1.0), "softshrink": (1, "lambd", 0.5),
    "hardshrink": (1, "lambd", 0.5), "softplus": (2, "threshold", 20.0), "threshold": (1, "threshold", 0.0),
}  # fmt: skip
"""Operators with a threshold for the size of their argument, or of a difference of two: its place, name and default."""
_NORMS = {"native_layer_norm": 4, "native_group_norm": 7, "native_batch_norm": 7}
"""Where these have the number that is added to a variance. The third output is one over the root of the sum."""
_EPSILON, _FELT = 1e-2, 1 / 16
"""The largest number that is added to what is never negative for its smallest values alone; which share of a sum it has
where it tells."""


def unreached(reference: Reference, sources: Sequence[Source], train: bool, seed: int) -> tuple[str, ...]:
    """The regimes, of `regimes.SCALED`, that get past thresholds that the usual values do not get past."""
    missing = _Sides()
    if not _reaches(reference, sources, train, seed, "given", missing) or missing.complete():
        return ()
    for regime in PURE:
        _reaches(reference, sources, train, seed, regime, missing)
    found = []
    for regime in SCALED:
        if not missing.complete() and _reaches(reference, sources, train, seed, regime, missing):
            found.append(regime)
    return tuple(found)


class _Sides:
    """The sides of each threshold that were reached."""

    def __init__(self) -> None:
        self.reached: dict[Site, set[str]] = defaultdict(set)
        self.all: dict[Site, set[str]] = {}

    def complete(self) -> bool:
        return all(self.reached[site] >= sides for site, sides in self.all.items())

    def add(self, other: _Sides) -> bool:
        """Adds those that another run reached; whether there are new ones."""
        self.all |= other.all
        before = sum(map(len, self.reached.values()))
        for site, sides in other.reached.items():
            self.reached[site] |= sides
        return sum(map(len, self.reached.values())) > before


def _reaches(
    reference: Reference, sources: Sequence[Source], train: bool, seed: int, regime: str, known: _Sides
) -> bool:
    """Whether values of a regime reach other sides; adds them."""
    with contextlib.suppress(DrKernelError):
        inputs = structure.draw(reference, sources, seed, regimes.change(regime, 0, seed))
        with _Watch() as watch:
            outputs = reference.forward(reference.model(seed).train(train), inputs)
        return shrink.finite(outputs) and known.add(watch.sides)
    return False


class _Watch(TorchDispatchMode):
    """Notes on which sides of its thresholds a reference's numbers lie."""

    def __init__(self) -> None:
        super().__init__()
        self.sides = _Sides()
        self._calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__.removesuffix("_")
        sides = dict(_sides_of(name, args, kwargs)) if _is_float(args) else {}
        outputs = func(*args, **kwargs)
        if _is_float(args):
            sides |= dict(_epsilon_of(name, args, outputs))
        if sides:
            site = name, self._calls[name]
            self._calls[name] += 1
            self.sides.all[site] = set(sides)
            self.sides.reached[site] |= {side for side, reached in sides.items() if reached}
        return outputs


def _is_float(args: tuple) -> bool:
    return bool(args) and isinstance(args[0], Tensor) and args[0].is_floating_point() and args[0].numel() > 0


def _sides_of(name: str, args: tuple, kwargs: dict) -> Iterator[tuple[str, bool]]:
    """The sides of an operator's threshold, and whether numbers lie there; none for other operators."""
    x, other = args[0], args[1] if len(args) > 1 else kwargs.get("other")
    if name in _BOUNDS:
        given = [
            next((kwargs[key] for key in keys if key in kwargs), args[place] if place and len(args) > place else None)
            for place, keys in zip(_BOUNDS[name], zip(*_NAMES, strict=True), strict=True)
        ]
        given = [-1.0, 1.0] if name == "hardtanh" and given == [None, None] else given
        least, greatest = given
        if least is not None:
            yield "below", _any(x < least)
        if greatest is not None:
            yield "above", _any(x > greatest)
        within = torch.ones_like(x, dtype=torch.bool)
        within = within if least is None else within & (x > least)
        yield "within", _any(within if greatest is None else within & (x < greatest))
    elif name in _FUSED:
        place, key, default = _FUSED[name]
        most = args[place] if len(args) > place else kwargs.get(key, default)
        size = (x - other if name.endswith("_loss") else x).abs()
        yield "more", _any(size > most)
        yield "less", _any(size < most)
    elif name in _COMPARISONS and isinstance(other, (int, float, Tensor)):
        yield "more", _any(x > other)
        yield "less", _any(x < other)


def _epsilon_of(name: str, args: tuple, outputs: Any) -> Iterator[tuple[str, bool]]:
    """Whether a small number that an operator adds to what is not negative tells anything there, and whether it
    vanishes; nothing for other operators."""
    share: Tensor | None = None
    if name in _NORMS and isinstance(outputs[2], Tensor):
        share = outputs[2].square() * args[_NORMS[name]]
    elif name == "add" and isinstance(args[1], (int, float)) and 0 < args[1] <= _EPSILON and not _any(args[0] < 0):
        share = args[1] / (args[0] + args[1])
    if share is not None and share.numel():
        yield "more", _any(share > _FELT)
        yield "less", _any(share < _FELT)


def _any(where: Tensor) -> bool:
    return bool(where.any())
