"""What an operator of graphs is: shapes, the eager function, spellings in PyTorch, its kind and lines in Triton.

One entry holds everything that the project knows of an operator. `Op` documents the fields that each kind uses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from drkernel.tasks.generators.graphs.dims import Shape
from drkernel.tasks.generators.graphs.nodes import Attributes, Parameter
from drkernel.tasks.generators.operators.operator import ALL_SIZES, State

Kind = Literal[
    "pointwise",
    "binary",
    "reduction",
    "norm",
    "softmax",
    "scan",
    "pool",
    "convolution",
    "product",
    "view",
    "gather",
    "loss",
    "positional",
    "composite",
    "library",
]
"""What a kernel for the operator looks like:

pointwise    `triton` turns `v` into `v`
binary       `triton` turns `v` (first input) and `u` (a second input, or the parameter, which broadcasts as the
             attribute `shape` says) into `v`; shapes broadcast as PyTorch's do
reduction    over the attribute `dims` (a tuple): `triton` on each element, then `fold`, then `finish` (`n` elements)
norm         like a reduction over `dims` whose result scales the elements; see `ops.norms`
softmax      along `dim`
scan         along `dim`
pool         windows over the last dimensions: `fold` is max or mean
convolution  see `ops.convolutions`
product      two inputs, or an input and `weight`
view         moves elements, computes nothing
gather       rows by index
loss         `triton` turns `v` and `u` (two inputs) into `v`, then `fold`, then `finish`; the output is a scalar
positional   `triton` turns `v` into `v`, where `r` and `c` are the element's places in the last two dimensions
composite    several of these in one: attention, gated units
library      PyTorch computes it in every answer
"""
Style = Literal["functional", "method", "manual", "module"]
Infer = Callable[[Sequence[Shape], Attributes], Shape]
Eager = Callable[[Sequence[Tensor], Mapping[str, Tensor], dict[str, Any]], Tensor]
"""(inputs, parameters by role, attributes with sizes as ints) -> the output."""
Draw = Callable[[random.Random, Sequence[Shape]], dict[str, Any] | None]
"""Attributes for inputs of these shapes; None where there are none."""


@dataclass(frozen=True)
class Spelling:
    """One way to write the operator in PyTorch.

    `{x}`, `{y}`, `{z}` are its inputs, `{weight}` a parameter, `{dim}` an attribute; `{stride=}` is `, stride=2`, or
    nothing where the attribute has the default of `Op.defaults`. Lines before the last one are statements.
    """

    style: Style
    text: str
    """An expression; for `module` the constructor."""
    when: Callable[[Attributes], bool] | None = None
    """Whether it is right for these attributes; None: always."""

    def fits(self, attributes: Attributes) -> bool:
        return self.when is None or self.when(attributes)


@dataclass(frozen=True)
class Op:
    """One operator."""

    name: str
    kind: Kind
    infer: Infer
    eager: Eager
    spellings: tuple[Spelling, ...]
    arity: int = 1
    """How many inputs it takes."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that need not be given, and what they are then; the same as in PyTorch."""
    derive: Callable[[Sequence[Shape], Attributes], dict[str, Any]] | None = None
    """Attributes that follow from shapes, e.g. `in_channels`."""
    parameters: Callable[[Sequence[Shape], Attributes], tuple[Parameter, ...]] | None = None
    draw: Draw | None = None
    """None: the defaults will do."""
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Attributes that a reference may take as constructor arguments, and what it calls them."""
    attribute_names: tuple[str, ...] = ()
    """What a reference may call its module."""
    inputs_alike: bool = False
    """The order of its inputs has no meaning."""
    several: bool = False
    """Whether its module returns a tuple, of which the first is the output."""
    output: str | None = None
    """The dtype of its output where it is not that of the input."""

    triton: tuple[str, ...] = ()
    """Lines on a value `v` in fp32 (and `u`), with attributes as placeholders: `{a}`."""
    fold: str = ""
    """sum | max | min | prod | logsumexp | argmax | argmin | variance (sum of squared differences from the mean, where
    `correction` is 1 with the attribute `unbiased`, else 0): what joins elements."""
    finish: tuple[str, ...] = ()
    """Lines on the joined value `v`, where `n` is the number of elements."""

    needs_signed: bool = False
    needs_positive: bool = False
    """Values must not be negative: `log`, `sqrt`."""
    needs_unbounded: bool = False
    sizes: tuple[str, ...] = ALL_SIZES
    """The sizes of values on which it is neither an identity nor a constant; see `State`."""
    leaves: Mapping[str, Any] = field(default_factory=dict)
    """The fields of `State` that it sets."""
    after: Callable[[State, Attributes], State] | None = None
    """The state behind it, where `leaves` is not enough."""
    superfluous_before: tuple[str, ...] = ()
    """Operators that do nothing right before this one."""
    tame: str = ""
    """What its input has to be so that results stay in range: `one` (values around one), `small`."""
    second: str = ""
    """What its second input has to be: `rand`, `sign`, `labels` (a class per row), `mask`; empty: like the first."""
    level: tuple[str, ...] = ("single", "chain")
    """Where it may be drawn: alone, in a chain."""

    def complete(self, shapes: Sequence[Shape], attributes: Attributes) -> dict[str, Any]:
        """The attributes with defaults and with what follows from shapes."""
        given = {**self.defaults, **attributes}
        return {**given, **(self.derive(shapes, given) if self.derive else {})}

    def drawn(self, rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
        """Attributes for inputs of these shapes; None where there are none."""
        return self.draw(rng, shapes) if self.draw else {}

    def accepts(self, state: State) -> bool:
        """Whether it does something, and does not destroy everything, on such values."""
        return (
            (state.signed or not self.needs_signed)
            and not (state.signed and self.needs_positive)
            and not (state.bounded and self.needs_unbounded)
            and state.size in self.sizes
        )

    def state_after(self, state: State, attributes: Attributes) -> State:
        return self.after(state, attributes) if self.after else replace(state, **self.leaves)


def table(*groups: tuple[Op, ...]) -> dict[str, Op]:
    """Operators by name. A name that occurs twice is an error."""
    found: dict[str, Op] = {}
    for op in (op for group in groups for op in group):
        assert op.name not in found, f"operator {op.name!r} is there twice"
        found[op.name] = op
    return found
