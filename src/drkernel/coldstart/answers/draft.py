"""A kernel that is being written: parameters in the order in which they are first asked for, and lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from drkernel.coldstart.answers.sizes import short
from drkernel.tasks.graphs.dims import Dim

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

    def definition(self) -> list[str]:
        constants = [f"{block}: tl.constexpr" for block in self.blocks]
        parameters = [*self.pointers.values(), "o_ptr", *self.sizes.values(), *constants]
        return ["@triton.jit", f"def {self.name}({', '.join(parameters)}):", *self.lines]

    def launch(self) -> str:
        values = [f"{block}={value}" for block, value in self.blocks.items()]
        arguments = [*self.pointers, OUTPUT, *self.sizes, *values]
        return f"{self.name}[{self.grid}]({', '.join(arguments)})"
