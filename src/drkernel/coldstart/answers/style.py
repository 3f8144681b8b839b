"""The surface of an answer: names, block sizes, helpers, wrappers. All of it is drawn; what is computed stays.

Kernels are written with canonical names. `Style.kernel` gives them those of the style.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_NAMES: dict[str, tuple[str, ...]] = {
    "i": ("i", "i", "idx", "offs", "offsets"),
    "m": ("m", "mask", "mask"),
    "v": ("v", "v", "x", "val"),
    "u": ("u", "u", "y", "other"),
    "j": ("j", "j", "cols"),
    "row": ("row", "row", "pid"),
    "p": ("p", "plane"),
    "s": ("s", "acc"),
    "a": ("a", "a"),
    "T": ("T", "n", "total", "numel"),
    "k0": ("k0", "kept", "res"),
    "BLOCK": ("BLOCK", "BLOCK", "BLOCK_SIZE"),
    "ROWS": ("ROWS", "BLOCK_R"),
}
_POINTERS = ("_ptr", "_ptr", "_p")
_KERNELS = ("kernel", "fused_kernel", "forward_kernel")
_OUTPUTS = ("o", "out", "y", "result")
_BLOCKS = (512, 1024, 1024, 1024, 2048)


@dataclass(frozen=True)
class Style:
    """See the top of this file."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Surface name by canonical name, where they differ."""
    pointer: str = "_ptr"
    kernel: str = "kernel"
    output: str = "o"
    block: int = 1024
    """The preferred number of elements of a program."""
    planes: bool = True
    """Whether programs have one plane where that saves loads; else elements are counted through."""
    helpers: bool = False
    """Whether long formulas are functions of their own."""
    grid: bool = False
    """Whether the grid has a line of its own."""
    autotune: bool = False
    pid: bool = False
    """Whether the number of the program has a variable of its own."""

    @classmethod
    def draw(cls, rng: random.Random, plain: bool = False) -> Style:
        """Any style; plain: the block size and the planes vary, and nothing that a reader would call style."""
        if plain:
            return cls(block=rng.choice(_BLOCKS), planes=rng.random() < 0.85)
        names: dict[str, str] = {}
        for name, choices in _NAMES.items():
            free = [choice for choice in choices if choice not in names.values()]
            names[name] = rng.choice(free)
        return cls(
            names,
            rng.choice(_POINTERS),
            rng.choice(_KERNELS),
            rng.choice(_OUTPUTS),
            rng.choice(_BLOCKS),
            rng.random() < 0.85,
            rng.random() < 0.2,
            rng.random() < 0.3,
            rng.random() < 0.06,
            rng.random() < 0.3,
        )

    def lines(self, lines: Sequence[str]) -> list[str]:
        """Lines of a kernel with the names of the style."""
        text = "\n".join(lines)
        text = re.sub(r"(?<![\w.])[A-Za-z_]\w*(?!\w*=[^=])", self._surface, text)
        return self._with_pid(text.split("\n"))

    def name(self, canonical: str) -> str:
        return self.names.get(canonical, canonical)

    def _surface(self, found: re.Match[str]) -> str:
        name = found[0]
        if name.endswith("_ptr"):
            return name.removesuffix("_ptr") + self.pointer
        return self.names.get(name, name)

    def _with_pid(self, lines: list[str]) -> list[str]:
        first = "tl.program_id(0) * "
        place = next((k for k, line in enumerate(lines) if first in line), None)
        if not self.pid or place is None or self.name("row") == "pid":
            return lines
        return [
            *lines[:place],
            "    pid = tl.program_id(0)",
            lines[place].replace(first, "pid * "),
            *lines[place + 1 :],
        ]
