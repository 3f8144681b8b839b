"""What a canonical form tells: its lines, and what is known of their values."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Line:
    """An assignment of the canonical form, or its `return`, which makes nothing."""

    makes: tuple[str, ...]
    reads: frozenset[str]
    text: str
    """As it suits all sizes."""
    told: str
    """As a policy reads it."""


@dataclass(frozen=True)
class Told:
    """The lines of a reference."""

    lines: Sequence[Line] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of values, inputs and tensors of the module, by name."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """Of those of them that are not float32: float16, bfloat16, int, bool."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Whole numbers that the module holds, by name: `n0`."""
    shown: int = 0
    """How many of the lines a policy reads before the last one."""
    absent: Collection[str] = frozenset()
    """Tensors that the module's parts might have and do not have, by name: `self.m0.bias`."""

    @cached_property
    def makers(self) -> dict[str, Line]:
        """The line that makes a value, by name."""
        return {name: line for line in self.lines for name in line.makes}

    @cached_property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the module's tensors, by name: of those that lines read, and of what is told of a module, which
        says no shapes of one dimension."""
        found = {name: shape for name, shape in self.shapes.items() if name.startswith("self.")}
        for line in self.lines:
            if called := re.search(r" = (self\.m\d+)\(", line.told):
                for role, sizes in re.findall(r"\b(\w+) \(([\d, ]+)\)", line.told.partition("  # ")[2]):
                    found[f"{called[1]}.{role}"] = tuple(map(int, re.findall(r"\d+", sizes)))
        return found

    def held(self, module: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The tensors of a module, by their names in it, and their shapes."""
        for name, shape in self.shapes.items():
            if name == module or name.startswith(f"{module}."):
                yield name.removeprefix(module), shape


def names_in(node: ast.AST, context: type[ast.expr_context] | None = None) -> list[str]:
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    return [name.id for name in names if context is None or isinstance(name.ctx, context)]
