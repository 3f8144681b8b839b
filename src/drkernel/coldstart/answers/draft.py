"""A kernel that is being written: parameters in the order in which they are first asked for, and lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from drkernel.coldstart.answers.sizes import short
from drkernel.coldstart.answers.style import Style
from drkernel.tasks.generators.graphs.dims import Dim
from drkernel.tasks.generators.graphs.nodes import Node

OUTPUT = "OUT"
"""Stands for the host variable that the kernel writes, until it has a name."""
POINTERS = ("x", "y", "z", "p", "q")


@dataclass
class Draft:
    """See the top of this file. Names are canonical; `style` gives them their surface."""

    name: str
    narrow: bool = False
    """Whether tensors have 16 bits, so that loads are widened."""
    pointers: dict[str, str] = field(default_factory=dict)
    """Parameter by host expression."""
    sizes: dict[str, str] = field(default_factory=dict)
    """Parameter by host expression."""
    blocks: dict[str, str] = field(default_factory=dict)
    """Host value by constexpr parameter."""
    lines: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    """Functions that the kernel calls."""
    host: list[str] = field(default_factory=list)
    """Statements before the launch."""
    grid: str = ""
    after: list[str] = field(default_factory=list)
    """Statements behind the launch."""
    depth: int = 1
    style: Style = field(default_factory=Style)
    marks: list[tuple[Node, int, int]] = field(default_factory=list)
    """Which lines compute a node: from a first one to before a second."""
    functions: dict[str, list[str]] = field(default_factory=dict)
    """Functions that the kernel calls, which are its answer's own."""
    warps: int = 0
    """Warps of a program; 0: Triton's default."""
    tuned: bool = False
    """Whether the block may be tuned: the grid names it."""

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines below a `for` or an `if`."""
        self.add(head)
        self.depth += 1
        yield
        self.depth -= 1

    def pointer(self, host: str, hint: str = "") -> str:
        """The parameter that points to a tensor of the host."""
        if host not in self.pointers:
            taken = set(self.pointers.values())
            names = [hint] if hint else list(POINTERS)
            names += [f"{name}{number}" for number in range(2, 9) for name in names]
            self.pointers[host] = next(n for n in (f"{name}_ptr" for name in names) if n not in taken)
        return self.pointers[host]

    def size(self, dim: Dim) -> str:
        """A size in the kernel: a number or a parameter."""
        return dim.text if dim.is_number else self.number(dim.text, short(dim) or "S")

    def number(self, host: str, name: str) -> str:
        """The parameter that holds an integer expression of the host."""
        if host not in self.sizes:
            taken = set(self.sizes.values())
            self.sizes[host] = next(n for n in (name, *(f"{name}{k}" for k in range(2, 9))) if n not in taken)
        return self.sizes[host]

    def _used(self) -> dict[str, str]:
        """The sizes that lines name."""
        named = set(re.findall(r"\w+", "\n".join(self.lines)))
        return {host: name for host, name in self.sizes.items() if name in named}

    def definition(self) -> list[str]:
        """The kernel's text in the style's names."""
        constants = [f"{block}: tl.constexpr" for block in self.blocks]
        parameters = [*self.pointers.values(), "o_ptr", *self._used().values(), *constants]
        head = f"def {self.name}({', '.join(parameters)}):"
        styled = self.style.lines([head, *self.lines])
        found = [line for function in self.functions.values() for line in [*function, ""]]
        return [*found, *self._tuning(), "@triton.jit", *styled]

    def _tuning(self) -> list[str]:
        if not self._is_tuned():
            return []
        block = self.style.name("BLOCK")
        configs = f'[triton.Config({{"{block}": size}}) for size in (512, 1024, 2048)]'
        return [f'@triton.autotune(configs={configs}, key=["{self.style.name("T")}"])']

    def _is_tuned(self) -> bool:
        return self.tuned and self.style.autotune

    def launch(self) -> list[str]:
        """The statements that launch it."""
        block = self.style.name("BLOCK")
        values = [f"{self.style.name(name)}={value}" for name, value in self.blocks.items()]
        grid = self.grid
        if self._is_tuned():
            values = []
            grid = f'lambda meta: (triton.cdiv(T, meta["{block}"]),)'
        elif self.warps:
            values.append(f"num_warps={self.warps}")
        arguments = ", ".join([*self.pointers, OUTPUT, *self._used(), *values])
        if self.style.grid or self._is_tuned():
            return [f"grid = {grid}", f"{self.name}[grid]({arguments})"]
        return [f"{self.name}[{grid}]({arguments})"]
