"""What a graph consists of: inputs, parameters, nodes. `graph.Graph` documents how they belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from drkernel.tasks.generators.graphs.dims import Dim, Shape
from drkernel.tasks.generators.operators.operator import State

Attribute = Dim | int | float | str | bool | None | tuple
"""A number, a word, a size, or a tuple of these."""
Attributes = Mapping[str, Any]
Distribution = Literal[
    "randn", "rand", "randint", "upper", "lower", "symmetric", "mask", "sign", "near_one", "probabilities"
]


@dataclass(frozen=True)
class Input:
    """A tensor that `get_inputs` makes and `forward` takes."""

    name: str
    """Its id in the graph; the reference may call it something else."""
    shape: Shape
    dtype: str = "float32"
    """That of the graph, `int64` (indices) or `bool` (masks)."""
    distribution: Distribution = "randn"
    """randn | rand (0 to 1) | randint (0 to `high`) | upper, lower (triangular matrices) | symmetric | mask (of random
    bools) | sign (-1 or 1) | near_one (0.95 to 1.05) |
    probabilities (rows of positive numbers whose sum is one)."""
    high: Dim | None = None
    """The bound of `randint`, which is excluded."""


@dataclass(frozen=True)
class Parameter:
    """A tensor that the reference owns: a parameter, or a buffer (running statistics)."""

    role: str
    """`weight`, `bias`, `running_mean`, ..., as PyTorch's modules call it; `value` where an operator has one alone."""
    shape: Shape
    init: str
    """module (as the PyTorch module initialises it) | randn | rand | ones | zeros | randn * 0.02 and the like."""
    buffer: bool = False


@dataclass(frozen=True)
class Node:
    """One operator applied to earlier values."""

    id: str
    """`n0`, `n1`, ... in the order of computation."""
    op: str
    """The operator's name in `ops.OPS`."""
    inputs: tuple[str, ...]
    """Ids of inputs and of earlier nodes."""
    attributes: Attributes
    """All that the operator needs (kernel sizes, dims, constants, ...), defaults included. Dims that count
    dimensions are never negative."""
    parameters: tuple[Parameter, ...]
    shape: Shape
    dtype: str
    state: State = field(default_factory=State)
    """What is known of its values."""

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(parameter.role for parameter in self.parameters)
