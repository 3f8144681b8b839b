"""How a kernel goes through a tensor by elements: in blocks, and where in other tensors what belongs to one lies.

View        blocks of elements, wherever they lie
Channels    the same, with what belongs to channels: index arithmetic, or ByChannel: a program stays in one channel
Maps        the same, with what belongs to places in all channels, or to all samples; MapsByChannel
Last        the same, with what belongs to the last dimension

Those that reduce: views.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

Shape = tuple[int, ...]
Place = tuple[str, str]
"""An index and a mask; no mask where it is empty."""


@dataclass(frozen=True)
class View:
    """Blocks of elements of a tensor of this shape. For the others: what they add."""

    shape: Shape
    over: tuple[int, int] = (0, 0)
    """First and last dimension that is reduced over."""
    groups: str = ""
    """How many groups of channels are reduced, as the answer writes it; empty where it is whole dimensions."""
    parts: int = 1
    """The same as a number."""
    is_loop: ClassVar[bool] = False
    """Whether the kernel goes through what is reduced in a loop."""
    axis: ClassVar[str] = "0"
    """What `tl.sum` reduces over; empty where a loop leaves nothing to reduce."""
    tile: ClassVar[str] = "(BLOCK,)"
    loop: ClassVar[str] = "for t in range(0, N, BLOCK):"
    inside: ClassVar[frozenset[str]] = frozenset("ij")
    """Names in the places of elements that a loop goes through."""

    @property
    def number(self) -> int:
        """Elements that are reduced to one."""
        return prod(self._reduced) // self.parts

    @property
    def _reduced(self) -> Shape:
        return self.shape[self.over[0] : self.over[1] + 1]

    @property
    def _start(self) -> str:
        """What is added to the places in a block, in a loop."""
        return "t + " if self.is_loop else ""

    @property
    def _inner(self) -> Shape:
        return self.shape[self.over[1] + 1 :]

    # What belongs to an element

    def place(self, shape: Shape, of_row: bool) -> Place | None:
        """Where in a tensor of this shape it lies; None where there is no formula.

        of_row: the tensor meets values of which there is one for all that is reduced.
        """
        if of_row:
            return self._of_rows.get(shape)
        shape = self._of_whole_rank(shape)
        if shape == self.shape:
            return "i", "m"
        return ("0", "") if prod(shape) == 1 else self._of_shapes.get(shape)

    def _of_whole_rank(self, shape: Shape) -> Shape:
        """The shape with ones before it, as PyTorch broadcasts it."""
        return (1,) * (len(self.shape) - len(shape)) + shape

    @cached_property
    def _of_rows(self) -> dict[Shape, Place]:
        return dict(self._beside_rows()) | dict.fromkeys(self.of_rows, self.row)

    @cached_property
    def _of_shapes(self) -> dict[Shape, Place]:
        return dict(self._beside())

    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        """Shapes other than the whole, and where what belongs to an element lies in them."""
        yield from ()

    def _beside_rows(self) -> Iterator[tuple[Shape, Place]]:
        """The same for values of which there is one for all that is reduced."""
        yield from ()

    def _only(self, first: int, last: int) -> Shape:
        """The shape with 1 for all but these dimensions."""
        return tuple(size if first <= d <= last else 1 for d, size in enumerate(self.shape))

    def _without(self, *dims: int) -> Shape:
        """The shape with 1 for these dimensions."""
        return tuple(1 if d in dims else size for d, size in enumerate(self.shape))

    def carried(self, number: str) -> str:
        """What a scan has before the first block."""
        return number

    @property
    def row(self) -> Place:
        """Where values lie of which there is one for all that is reduced."""
        return "row", ""

    @property
    def of_rows(self) -> list[Shape]:
        """Their shapes, with any number of ones in place of what is reduced."""
        return []

    def spreads(self, shape: Shape) -> bool:
        """Whether values of this shape, of which there is one for all that is reduced, meet what they were reduced
        from. Those of a square without a last 1 would meet its columns."""
        return all(size == 1 for size in self._of_whole_rank(shape)[self.over[0] : self.over[1] + 1])

    # The kernel

    @property
    def head(self) -> list[str]:
        """Statements at the start."""
        return []

    @property
    def block(self) -> list[str]:
        """Statements for one block; `t` is its first element in a loop."""
        return ["i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "m = i < T"]

    @property
    def nest(self) -> list[tuple[str, list[str]]]:
        """Loops, one in another, each with the statements at its start."""
        return [(self.loop, self.block)]

    @property
    def mask(self) -> str:
        """Of the elements that are reduced, where some in a loop are not; empty where all are."""
        return "m"

    @property
    def constants(self) -> dict[str, str]:
        """By name, with `num_warps` where it is not the default."""
        return {"BLOCK": "1024"}

    # The function that launches it

    def grid(self, lead: str) -> str:
        return "triton.cdiv(T, 1024),"

    def output(self, lead: str, shape: Shape) -> str | None:
        """The tensor that the kernel fills; None where its shape has no formula. lead: a tensor of the whole shape."""
        if shape == self.shape:
            return f"torch.empty_like({lead})"
        if shape not in self.of_rows:
            return None
        outer, ones = self.over[0], len(shape) - self.over[0] - len(self._inner)
        sides = [f"*{lead}.shape[:{outer}]"] * bool(outer) + ["1"] * ones
        sides += [f"*{lead}.shape[{self.over[1] + 1}:]"] * bool(self._inner)
        size = f"({', '.join(sides)})" if len(sides) > 1 else sides[0][1:]
        return f"{lead}.new_empty({size})"

    def sizes(self, lead: str, used: str) -> dict[str, str]:
        """Formulas of the sizes that this source uses, by name."""
        known = {
            "T": self._total(lead),
            "B": f"{lead}.shape[0]",
            "G": self.groups.replace("{lead}", lead),
            "N": self._length(lead),
            "R": f"{lead}[0].numel() // N",
            "M": f"{lead}.numel() // N",
            "I": f"{first(lead, self.over[1] + 1)}.numel()",
            "HW": f"{lead}[0, 0].numel()",
            "C": f"{lead}.shape[1]",
            "S": f"{lead}.shape[{self.over[0] - 1}]",
        }
        found: list[str] = []
        for name, text in reversed(known.items()):
            if text and re.search(rf"\b{name}\b", used):
                found.append(name)
                used += f"\n{text}"
        return {name: text for name, text in known.items() if name in found}

    def _total(self, lead: str) -> str:
        """How many elements it goes through."""
        return "o.numel()"

    def _length(self, lead: str) -> str:
        """How many elements are reduced to one."""
        if self.groups:
            return f"{lead}[0].numel() // G"
        if len(self._reduced) > 1 and not self._inner:
            return f"{first(lead, self.over[0])}.numel()"
        return " * ".join(f"{lead}.shape[{d}]" for d in range(self.over[0], self.over[1] + 1))


class Channels(View):
    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        yield (*self.shape[:2], *(1,) * (len(self.shape) - 2)), ("i // HW", "m")
        yield self._only(0, 0), ("i // HW // C", "m")
        yield self._only(1, 1), ("i // HW % C", "m")


class Maps(Channels):
    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        yield from super()._beside()
        yield self._without(1), ("i // HW // C * HW + i % HW", "m")
        yield self._without(0), ("i % (C * HW)", "m")
        yield self._without(0, 1), ("i % HW", "m")


class ByChannel(View):
    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        yield (*self.shape[:2], *(1,) * (len(self.shape) - 2)), ("p", "")
        yield self._only(0, 0), ("p // C", "")
        yield self._only(1, 1), ("c", "")

    @property
    def head(self) -> list[str]:
        return ["p = tl.program_id(0)", "c = p % C"]

    @property
    def block(self) -> list[str]:
        return ["j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)", "m = j < HW", "i = p * HW + j"]

    def grid(self, lead: str) -> str:
        return f"{lead}.shape[0] * C, triton.cdiv(HW, 1024)"


class MapsByChannel(ByChannel):
    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        yield from super()._beside()
        yield self._without(1), ("p // C * HW + j", "m")
        yield self._without(0), ("c * HW + j", "m")
        yield self._without(0, 1), ("j", "m")


class Last(View):
    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        yield self._only(len(self.shape) - 1, len(self.shape) - 1), ("i % N", "m")
        yield (*self.shape[:-1], 1), ("i // N", "m")

    def _length(self, lead: str) -> str:
        return f"{lead}.shape[-1]"


def first(lead: str, dims: int) -> str:
    """The first of the parts that the first dimensions count."""
    return f"{lead}[{', '.join(['0'] * dims)}]" if dims else lead
