"""A program as source: statements over named values, the module that they need, its sizes and inputs."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from drkernel.tasks.generators.graphs.dims import Dim, Shape, as_dim, count, same
from drkernel.tasks.generators.programs import sizes

MOST_ELEMENTS = 2**28
"""Of a value as published."""
MOST_RANK = 5
LEAST_ALIKE = 100
"""The least number that is one size wherever it stands."""
_INPUTS = ("x", "y", "z", "u", "w")
_HOLDERS = ("weight", "weight", "bias", "gamma", "scale", "alpha", "beta", "g")
"""What modules of their own call a parameter."""
_SOURCE = """\
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

{sizes}
{classes}

class Model(nn.Module):
    def __init__(self{given}):
        super().__init__()
{held}
    def forward(self, {arguments}):
{body}
        return {outputs}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{initial}]
"""


class Unfit(Exception):
    """What was drawn does not fit the value."""


@dataclass(frozen=True)
class Value:
    """A tensor of the program."""

    name: str
    shape: Shape
    dtype: str = "float"
    """float, int or bool."""

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class Program:
    """A program that grows at its `value`."""

    rng: random.Random
    dtype: str = "float32"
    sizes: dict[str, Dim] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    """What `get_inputs` makes, by name."""
    classes: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    """Functions of the file, by name."""
    held: list[tuple[str, str]] = field(default_factory=list)
    """Attributes of the module and what they are."""
    body: list[tuple[str, str]] = field(default_factory=list)
    """Values and the expressions that make them."""
    values: list[Value] = field(default_factory=list)
    reusable: list[tuple[str, Shape, Shape]] = field(default_factory=list)
    """Modules that may be called again: their name, the shapes that they take and make."""
    steps: list[str] = field(default_factory=list)
    """The names of the steps, in order."""

    @property
    def value(self) -> Value:
        return self.values[-1]

    def size(self, role: str, known: tuple[int, int] | None = None) -> Dim:
        """A new size, or one that is there. One number is not two sizes: an answer could not tell them apart."""
        full, small = known or sizes.drawn(self.rng, role)
        for name, dim in self.sizes.items():
            if dim.full == full and (full >= LEAST_ALIKE or (name.startswith(role) and dim.small == small)):
                return dim
        number = sum(name.startswith(role) for name in self.sizes)
        name = f"{role}{number}" if number else role
        self.sizes[name] = Dim(name, full, small)
        return self.sizes[name]

    def input(self, shape: Sequence[Dim | int], kind: str = "randn") -> Value:
        """A further input: `randn`, `rand`, `mask`, or whole numbers below the size that `kind` names."""
        if len(self.inputs) == len(_INPUTS):
            raise Unfit
        name, dims = _INPUTS[len(self.inputs)], tuple(map(as_dim, shape))
        listed = ", ".join(dim.text for dim in dims)
        typed = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        texts = {"randn": f"torch.randn({listed}{typed})", "rand": f"torch.rand({listed}{typed})"}
        texts["mask"] = f"torch.rand({listed}) > 0.3"
        self.inputs[name] = texts.get(kind) or f"torch.randint(0, {kind}, ({listed},))"
        made = Value(name, dims, {"randn": "float", "rand": "float", "mask": "bool"}.get(kind, "int"))
        self.values.append(made)
        return made

    def let(self, text: str, shape: Sequence[Dim | int], dtype: str = "float") -> Value:
        """A new value, which becomes the last one."""
        dims = tuple(map(as_dim, shape))
        if len(dims) > MOST_RANK or count(dims) > MOST_ELEMENTS or any(min(dim.full, dim.small) < 1 for dim in dims):
            raise Unfit
        made = Value(f"v{len(self.body)}", dims, dtype)
        self.body.append((made.name, text))
        self.values.append(made)
        return made

    def hold(self, text: str, stem: str = "layer") -> str:
        """An attribute of the module."""
        name = f"{stem}{len(self.held)}"
        self.held.append((name, text))
        return f"self.{name}"

    def parameter(self, shape: Sequence[Dim | int], spread: float = 0.5) -> str:
        """A tensor of the module, or of a module of its own: a parameter mostly."""
        listed = "".join(f"{as_dim(dim).text}, " for dim in shape)
        made = f"1.0 + {spread} * torch.randn(({listed}))"
        if self.rng.random() < 0.3:
            role = self.rng.choice(_HOLDERS)
            self.classes.setdefault(role, _class(role))
            return f"{self.hold(f'Holds{role.title()}({made})', role)}.{role}"
        return self.hold(f"nn.Parameter({made})", self.rng.choice(_HOLDERS))

    def number(self, value: int) -> str:
        """A whole number as it is, or as the module has it."""
        return str(value) if self.rng.random() < 0.5 else self.hold(str(value), "number")

    def alike(self, value: Value) -> list[Value]:
        """Other values of this shape."""
        fit = lambda other: other.rank == value.rank and all(map(same, other.shape, value.shape))
        return [other for other in self.values if other.dtype == "float" and other != value and fit(other)]

    def go_to(self, value: Value) -> Value:
        """Makes a value the one at which the program grows."""
        self.values.remove(value)
        self.values.append(value)
        return value

    def saved(self) -> dict[str, dict | list]:
        """The state, for `restore`."""
        return {name: part.copy() for name, part in vars(self).items() if isinstance(part, dict | list)}

    def restore(self, saved: dict[str, dict | list]) -> None:
        vars(self).update({name: part.copy() for name, part in saved.items()})

    def source(self, outputs: Sequence[Value]) -> str:
        """The file of the task: what the outputs need."""
        body = self._ordered(self._needed({value.name for value in outputs}))
        text = "\n".join(f"{name} = {made}" for name, made in body)
        held = [(name, made) for name, made in self.held if re.search(rf"self\.{name}\b", text)]
        used = " ".join([text, *(made for _, made in held), *self.inputs.values()])
        named = {name: dim for name, dim in self.sizes.items() if re.search(rf"\b{name}\b", used)}
        given = [name for name in named if any(re.search(rf"\b{name}\b", made) for _, made in held)]
        lines = [f"self.{name} = {made}" for name, made in held] or ["pass"]
        if self.dtype != "float32" and held:
            lines.append(f"self.to(torch.{self.dtype})")
        classes = [made for role, made in self.classes.items() if f"Holds{role.title()}" in used]
        classes += [made for name, made in self.functions.items() if f"{name}(" in text]
        return _SOURCE.format(
            sizes="".join(f"{name} = {dim.full}\n" for name, dim in named.items()),
            classes="".join(f"\n\n{made}" for made in classes),
            given="".join(f", {name}" for name in given),
            initial=", ".join(given),
            held="\n".join(f"        {line}" for line in lines) + "\n",
            arguments=", ".join(self.inputs),
            body="\n".join(f"        {name} = {made}" for name, made in body),
            outputs=", ".join(value.name for value in outputs),
            inputs=", ".join(self.inputs.values()),
        )

    def small(self, source: str) -> dict[str, int]:
        """The sizes on the simulated device that the source has."""
        return {n: dim.small for n, dim in self.sizes.items() if re.search(rf"^{n} = ", source, re.MULTILINE)}

    def _needed(self, names: set[str]) -> list[tuple[str, str]]:
        """The statements that values need."""
        found = []
        for name, text in reversed(self.body):
            if name in names:
                names |= set(re.findall(r"\bv\d+\b", text))
                found.append((name, text))
        return found[::-1]

    def _ordered(self, statements: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The statements as they were drawn, or some of them later and others sooner."""
        chance = self.rng.choice((0.0, 0.0, 0.0, 0.2, 0.6))
        left, made, found = list(statements), set[str](), []
        while left:
            ready = [s for s in left if set(re.findall(r"\bv\d+\b", s[1])) <= made]
            chosen = self.rng.choice(ready) if self.rng.random() < chance else ready[0]
            left.remove(chosen)
            made.add(chosen[0])
            found.append(chosen)
        return found


def _class(role: str) -> str:
    lines = (
        f"class Holds{role.title()}(nn.Module):",
        f"    def __init__(self, {role}):",
        "        super().__init__()",
        f"        self.{role} = nn.Parameter({role})\n",
    )
    return "\n".join(lines)
