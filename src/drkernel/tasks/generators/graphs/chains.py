"""What follows a convolution, a product or an input: a few operators, drawn evenly within their kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from drkernel.tasks.generators.graphs.dims import alike, count
from drkernel.tasks.generators.graphs.graph import Builder
from drkernel.tasks.generators.graphs.op import Op
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.graphs.ops.activations import ACTIVATIONS
from drkernel.tasks.generators.graphs.ops.arithmetic import ARITHMETIC

STEPS: dict[str, float] = {
    "activation": 0.32,
    "arithmetic": 0.22,
    "parameter": 0.11,
    "norm": 0.10,
    "pool": 0.08,
    "reduction": 0.08,
    "softmax": 0.05,
    "earlier": 0.05,
    "input": 0.03,
    "view": 0.02,
    "scan": 0.01,
    "library": 0.05,
}
"""How often a step is of which kind."""
NARROW_STEPS = ("activation", "arithmetic", "parameter", "norm", "softmax", "earlier", "input")
"""Steps whose results 16 bits can hold; see `families.FAMILIES_OF_16_BITS`."""
_NOT_NARROW = (
    "multiply",
    "square",
    "cube",
    "exp",
    "expm1",
    "exp_negative",
    "squared_relu",
    "l1_norm",
    "frobenius_norm",
    "log_softmax",
)
_TRIES = 60
_LEAST_SMALL = 4
"""Elements that a value keeps at small sizes, unless it is a scalar that ends the chain."""


def _named(*kinds: str) -> tuple[str, ...]:
    return tuple(name for name, op in OPS.items() if op.kind in kinds and "chain" in op.level)


_CANDIDATES: dict[str, tuple[str, ...]] = {
    "activation": (*(op.name for op in ACTIVATIONS if "chain" in op.level), "prelu"),
    "arithmetic": tuple(op.name for op in ARITHMETIC if "chain" in op.level),
    "parameter": ("add_parameter", "subtract_parameter", "multiply_parameter"),
    "norm": _named("norm"),
    "pool": _named("pool"),
    "reduction": _named("reduction"),
    "softmax": _named("softmax"),
    "earlier": ("add", "multiply", "subtract"),
    "input": ("add", "multiply", "subtract", "maximum", "minimum"),
    "view": _named("view"),
    "scan": _named("scan"),
    "library": _named("library"),
}
_CONSTANTS = ("scale", "add_constant", "subtract_constant", "divide", "clamp_min", "clamp_max")
"""Arithmetic that people write most; half of all arithmetic is of these."""


_STEEP, _EARLY = ("exp", "expm1", "exp_negative", "sum_exp", "cube", "logcumsumexp"), 3
"""Operators that leave the range of numbers on what many others have made larger, and behind how many they may be."""
_POSITIVE = (
    *("relu", "relu6", "sigmoid", "hardsigmoid", "softplus", "squared_relu", "abs", "square", "exp", "exp_negative"),
    *("gaussian", "log_abs", "softmax", "softmin", "norm", "norm1", "mean_abs", "mean_square", "sum_square", "sum_exp"),
    *("var", "std", "log1p", "sqrt", "rsqrt", "reciprocal"),
)
"""Operators that leave no negative values."""


_SCALES = ("scale", "divide", "rms_scale", "l1_norm", "l2_norm", "mean_abs_norm", "frobenius_norm")
_UNDONE: dict[str, tuple[str, ...]] = {
    "norm": (*_SCALES, "standardize", "centre"),
    "softmax": ("add_constant", "subtract_constant", "log_softmax"),
}
"""Operators that the next one undoes, by its kind; of norms, not those that have statistics of their own."""


_REPEATED = (*_CONSTANTS[:4], *_CANDIDATES["pool"], *_CANDIDATES["earlier"], "add_parameter")
"""Operators that may be in a chain twice, with other numbers."""


_SHIFTS = (
    *("add_constant", "subtract_constant", "add_parameter", "subtract_parameter"),
    *("dropout", "subtract_from", "negative"),
)
"""Operators whose output differs from their input, or from its negative, by something that is known."""


@dataclass
class Chain:
    """A chain that grows at its last value."""

    build: Builder
    rng: random.Random
    value: str
    used: list[str] = field(default_factory=list)
    flat: bool = False
    """Whether sums over some dimensions may be constant: right after a norm or a softmax."""

    def grow(self, steps: int) -> bool:
        """Adds so many operators; whether that was possible."""
        return all(self._step() for _ in range(steps))

    def _step(self) -> bool:
        narrow = self.build.dtype != "float32"
        kinds = {kind: weight for kind, weight in STEPS.items() if not narrow or kind in NARROW_STEPS}
        for _ in range(_TRIES):
            kind = self.rng.choices(list(kinds), list(kinds.values()))[0]
            name = self._name(kind)
            if self._sound(name) and not (narrow and name in _NOT_NARROW) and self._add(kind, name):
                return True
        return False

    def _name(self, kind: str) -> str:
        if kind == "arithmetic" and self.rng.random() < 0.5:
            return self.rng.choice(_CONSTANTS)
        return self.rng.choice(_CANDIDATES[kind])

    def _sound(self, name: str) -> bool:
        """Whether the operator does something here."""
        op, before = OPS[name], self.used[-1] if self.used else ""
        if name in self.used and name not in _REPEATED:
            return False
        if before in op.superfluous_before or not op.accepts(self.build.state(self.value)):
            return False
        if before in _UNDONE.get(op.kind, ()) and not op.name.startswith("batch_norm"):
            return False
        if name in _STEEP and len(self.build.nodes) > _EARLY:
            return False
        if op.needs_positive and before not in _POSITIVE:
            return False
        if op.name == "dropout":
            return before != ""
        return not (self.flat and op.fold in ("sum", "logsumexp") and op.kind in ("reduction", "pool"))

    def _add(self, kind: str, name: str) -> bool:
        others = _OTHERS[kind](self, name) if kind in _OTHERS else []
        if others is None:
            return False
        op, shape = OPS[name], self.build.shape(self.value)
        attributes = op.drawn(self.rng, [shape]) if shape else None
        if attributes is None or not self._leaves_enough(op, attributes):
            if kind == "input":
                self.build.drop_input()
            return False
        self.value = self.build.node(name, self.value, *others, **attributes)
        self.used.append(name)
        self.flat = op.kind in ("norm", "softmax") or (self.flat and not _bends(op))
        return True

    def _leaves_enough(self, op: Op, attributes: dict[str, Any]) -> bool:
        shapes = [self.build.shape(self.value)]
        shape = op.infer(shapes, op.complete(shapes, attributes)) if op.arity == 1 else shapes[0]
        return bool(shape) and count(shape, small=True) >= _LEAST_SMALL

    def earlier(self, name: str) -> list[str] | None:
        """An earlier value of the same shape, for a residual; none of which the difference is known."""
        shape = self.build.shape(self.value)
        last = next(node for node in self.build.nodes if node.id == self.value) if self.build.nodes else None
        found = [
            value
            for value in self.build.values()
            if value != self.value
            and alike(self.build.shape(value), shape)
            and (last is None or value not in last.inputs or OPS[last.op].kind != "binary")
            and not (name != "multiply" and last and value in last.inputs and last.op in _SHIFTS)
        ]
        fitting = [value for value in found if self.build.dtype_of(value) == self.build.dtype]
        return [self.rng.choice(fitting)] if fitting else None

    def another(self, name: str) -> list[str] | None:
        """A further input that broadcasts to the value."""
        if any(x.name == "y" for x in self.build.inputs) or len(self.build.inputs) > 1:
            return None
        shape = self.build.shape(self.value)
        if not shape:
            return None
        shapes: list[Sequence[Any]] = [shape, shape]
        if len(shape) > 2:
            shapes += [(shape[1], *[1] * (len(shape) - 2)), (shape[0], *[1] * (len(shape) - 1))]
        return [self.build.input("y", self.rng.choice(shapes))]


_OTHERS: dict[str, Callable[[Chain, str], list[str] | None]] = {
    "earlier": lambda chain, name: chain.earlier(name),
    "input": lambda chain, name: chain.another(name),
}


def _bends(op: Op) -> bool:
    """Whether it is an activation, so that sums behind it are no longer constant."""
    return (
        op.kind == "pointwise"
        and op.name not in ("scale", "divide", "negative", "dropout", "subtract_from")
        and not (op.name.endswith("_constant"))
    )
