"""How a kernel goes through a tensor: in what blocks, and where in other tensors what belongs to an element lies.

View        blocks of elements, wherever they lie
Channels    the same, with what belongs to channels: index arithmetic, or ByChannel: a program stays in one channel
Last        the same, with what belongs to the last dimension
Rows        what is reduced lies side by side; ShortRows: several rows a program; LongRows: a loop over a row
Columns     what is reduced lies apart; LongColumns: a loop over it
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from drkernel.coldstart.answers.known import Shapes
from drkernel.coldstart.answers.steps import Step

Shape = tuple[int, ...]
Place = tuple[str, str]
"""An index and a mask; no mask where it is empty."""

LEAST_PROGRAMS = 64
"""With fewer a GPU is mostly idle."""
SHORT = 512
"""Elements up to which a program has several rows, and from which on one channel is enough for it."""
LONG_ROW, LONG_COLUMN = 16384, 256
"""Elements from which on a program goes through them in a loop; twice as long rows where it writes none of that length,
and has registers for one."""


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
            return self.row if shape in self.of_rows else dict(self._beside_rows()).get(shape)
        shape = (1,) * (len(self.shape) - len(shape)) + shape
        if shape == self.shape:
            return "i", "m"
        return ("0", "") if prod(shape) == 1 else dict(self._beside()).get(shape)

    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        """Shapes other than the whole, and where what belongs to an element lies in them."""
        yield from ()

    def _beside_rows(self) -> Iterator[tuple[Shape, Place]]:
        """The same for values of which there is one for all that is reduced."""
        yield from ()

    def _only(self, first: int, last: int) -> Shape:
        """The shape with 1 for all but these dimensions."""
        return tuple(size if first <= d <= last else 1 for d, size in enumerate(self.shape))

    @property
    def row(self) -> Place:
        """Where values lie of which there is one for all that is reduced."""
        return "row", ""

    @property
    def of_rows(self) -> list[Shape]:
        """Their shapes, with any number of ones in place of what is reduced."""
        return []

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
            "T": "o.numel()",
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


class Last(View):
    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        yield self._only(len(self.shape) - 1, len(self.shape) - 1), ("i % N", "m")
        yield (*self.shape[:-1], 1), ("i // N", "m")

    def _length(self, lead: str) -> str:
        return f"{lead}.shape[-1]"


class Rows(View):
    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        first, last = self.over
        if self.groups:
            yield self._only(1, 1), ("row % G * (C // G) + j // HW", "m")
            return
        if first == 1 and len(self.shape) > 2:
            yield self._only(1, 1), ("j // HW", "j < N")
        if first:
            yield self._only(first - 1, first - 1), self._last_outer
            yield self._only(first - 1, last), (f"{self._last_outer[0]} * N + j", "m")
        if first > 1:
            yield self._only(0, 0), ("row // R", self.row[1])
            yield (self.shape[0], *self._only(first, last)[1:]), ("row // R * N + j", "m")
        yield self._only(first, last), ("j", "j < N")
        yield self.of_rows[-1], self.row

    def _beside_rows(self) -> Iterator[tuple[Shape, Place]]:
        first = self.over[0]
        if first and not self.groups:
            for leading in range(first):
                for ones in range(len(self.shape) - first + 1):
                    yield (*(1,) * leading, self.shape[first - 1], *(1,) * ones), self._last_outer

    @property
    def _last_outer(self) -> Place:
        """Where what belongs to the last dimension before what is reduced lies."""
        return f"row % {'C' if self.over[0] == 2 else 'S'}", ""

    @property
    def of_rows(self) -> list[Shape]:
        outer = self.shape[: self.over[0]]
        return [] if self.groups else [(*outer, *(1,) * ones) for ones in range(len(self._reduced) + 1)]

    @property
    def head(self) -> list[str]:
        return ["row = tl.program_id(0)"]

    @property
    def block(self) -> list[str]:
        return [f"j = {self._start}tl.arange(0, BLOCK)", "m = j < N", "i = row * N + j"]

    @property
    def constants(self) -> dict[str, str]:
        warps = {"num_warps": "32" if self.number > 16384 else "8"} if self.number > 2048 else {}
        return {"BLOCK": "triton.next_power_of_2(N)", **warps}

    def grid(self, lead: str) -> str:
        return f"{lead}.numel() // N,"


class ShortRows(Rows):
    axis = "1, keep_dims=True"

    @property
    def row(self) -> Place:
        return "row", "row < M"

    @property
    def head(self) -> list[str]:
        return ["row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]"]

    @property
    def block(self) -> list[str]:
        return ["j = tl.arange(0, BLOCK)[None, :]", "m = (row < M) & (j < N)", "i = row * N + j"]

    @property
    def constants(self) -> dict[str, str]:
        return {"ROWS": str(min(4096 // _power_of_2(self.number), 128)), "BLOCK": "triton.next_power_of_2(N)"}

    def grid(self, lead: str) -> str:
        return f"triton.cdiv(M, {self.constants['ROWS']}),"


class LongRows(Rows):
    is_loop = True

    @property
    def constants(self) -> dict[str, str]:
        return {"BLOCK": "8192", "num_warps": "32"}


class Columns(View):
    axis = "0, keep_dims=True"
    tile = "(BLOCK, COLS)"

    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        first, last = self.over
        yield self._only(last + 1, len(self.shape) - 1), ("k", "k < I")
        yield self._only(first, last), ("j", "j < N")
        yield self.of_rows[-1], self.row

    @property
    def row(self) -> Place:
        return "p * I + k", "k < I"

    @property
    def of_rows(self) -> list[Shape]:
        outer = self.shape[: self.over[0]]
        return [(*outer, *(1,) * ones, *self._inner) for ones in range(len(self._reduced) + 1)]

    @property
    def head(self) -> list[str]:
        return ["p = tl.program_id(0)", "k = tl.program_id(1) * COLS + tl.arange(0, COLS)[None, :]"]

    @property
    def block(self) -> list[str]:
        index = "i = (p * N + j) * I + k"
        return [f"j = {self._start}tl.arange(0, BLOCK)[:, None]", "m = (j < N) & (k < I)", index]

    @property
    def constants(self) -> dict[str, str]:
        columns = min(max(4096 // _power_of_2(self.number), 16), 128)
        return {"BLOCK": "triton.next_power_of_2(N)", "COLS": str(columns)}

    def grid(self, lead: str) -> str:
        outer = " * ".join(f"{lead}.shape[{d}]" for d in range(self.over[0])) or "1"
        return f"{outer}, triton.cdiv(I, {self.constants['COLS']})"


class LongColumns(Columns):
    is_loop = True

    @property
    def constants(self) -> dict[str, str]:
        return {"BLOCK": "64", "COLS": "64", "num_warps": "8"}


def views(steps: tuple[Step, ...], shapes: Shapes) -> Iterator[View]:
    """Those that a kernel of these steps may have, the simplest first."""
    reductions = {(s.over, s.groups, s.parts, shapes[s.operands[0]]) for s in steps if s.over}
    if not reductions:
        shape = max((shapes[step.makes] for step in steps), key=prod)
        yield View(shape)
        if len(shape) > 2:
            yield ByChannel(shape) if prod(shape[2:]) >= SHORT else Channels(shape)
        yield Last(shape)
    elif len(reductions) == 1:
        over, groups, parts, shape = next(iter(reductions))
        long_row = LONG_ROW if shapes[steps[-1].makes] == shape else 2 * LONG_ROW
        if (view := _reducing(shape, over or (0, 0), groups, parts, long_row)) is not None:
            yield view


def _reducing(shape: Shape, over: tuple[int, int], groups: str, parts: int, long_row: int) -> View | None:
    """The view of a reduction; None where nothing is reduced, or by too few programs."""
    whole = Rows(shape, over, groups, parts)
    inner = prod(shape[over[1] + 1 :])
    if whole.number < 2:
        return None
    if over[1] < len(shape) - 1:
        programs = prod(shape[: over[0]]) * -(-inner // 128)
        kind: type[View] = Columns if whole.number <= LONG_COLUMN else LongColumns
        return kind(shape, over) if programs >= LEAST_PROGRAMS else None
    kind = ShortRows if whole.number <= SHORT else Rows if whole.number <= long_row else LongRows
    return kind(shape, over, groups, parts) if prod(shape) // whole.number >= LEAST_PROGRAMS else None


def _power_of_2(number: int) -> int:
    """The least that is not below the number."""
    return 1 << (number - 1).bit_length()


def first(lead: str, dims: int) -> str:
    """The first of the parts that the first dimensions count."""
    return f"{lead}[{', '.join(['0'] * dims)}]" if dims else lead
