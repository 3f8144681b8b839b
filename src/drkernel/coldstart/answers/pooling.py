"""How a kernel goes through windows: a program has a block of one plane's windows, and loops go through their places.

A plane is what one channel of one image has. So the divisions that find a window happen once, a channel's numbers are
the same for a whole program, and only the planes' starts need 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from drkernel.coldstart.answers.kernel_text import SIDES
from drkernel.coldstart.answers.known import Shapes
from drkernel.coldstart.answers.steps import Step, Window
from drkernel.coldstart.answers.view import Place, Shape, View

NOWHERE = Window((), (), (), ())
LARGE_BLOCK, BLOCK, LEAST_BLOCK = 512, 256, 64
"""Windows of a program: large ones where neighbours share most of what they load, and that is not much."""
MUCH = 25
"""Places of a window up to which that is so."""


@dataclass(frozen=True)
class Pool(View):
    """Elements are those of windows; rows are windows, of which each is one element of the output."""

    made: Shape = ()
    """The shape of the output."""
    window: Window = NOWHERE
    is_loop: ClassVar[bool] = True
    axis: ClassVar[str] = ""
    inside: ClassVar[frozenset[str]] = frozenset(("yW", "rW"))

    @classmethod
    def of(cls, step: Step, shapes: Shapes) -> Pool:
        assert step.window is not None and step.over is not None
        return cls(shapes[step.operands[0]], step.over, made=shapes[step.makes], window=step.window)

    @property
    def _sides(self) -> str:
        return SIDES[len(self.window.kernel)]

    @property
    def _windows(self) -> list[tuple[str, int, int, int, int]]:
        """Name, kernel, stride, padding and dilation by dimension."""
        window = self.window
        return list(zip(self._sides, window.kernel, window.stride, window.padding, window.dilation, strict=True))

    @property
    def _plane(self) -> str:
        """Windows of a plane."""
        return " * ".join(f"O{side}" for side in self._sides)

    def place(self, shape: Shape, of_row: bool) -> Place | None:
        if of_row and shape == self.made:
            return self.row
        if shape == (self.shape[1], 1, *self.window.kernel):
            return self._weight, ""
        shape = self._of_whole_rank(shape)
        if shape == self.shape:
            return ("q + yW" if len(self._sides) == 1 else "q + jH + yW"), self.mask or "m"
        return ("0", "") if prod(shape) == 1 else dict(self._beside()).get(shape)

    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        yield self._only(1, 1), ("p % C", "")
        yield (*self.shape[:2], *(1,) * len(self.window.kernel)), ("p", "")

    @property
    def _weight(self) -> str:
        """Where in what has a number for each channel and place the number lies."""
        where = "p % C"
        for side, kernel, *_ in self._windows:
            where = f"{f'({where})' if ' + ' in where else where} * {kernel} + r{side}"
        return where

    @property
    def row(self) -> Place:
        return "i", "m"

    @property
    def of_rows(self) -> list[Shape]:
        return [self.made]

    @property
    def head(self) -> list[str]:
        """The plane `p` and where it begins, and where in it each window begins."""
        lines = [
            f"p = (tl.program_id(0) // tl.cdiv({self._plane}, BLOCK)).to(tl.int64)",
            f"k = tl.program_id(0) % tl.cdiv({self._plane}, BLOCK) * BLOCK + tl.arange(0, BLOCK)",
            f"m = k < {self._plane}",
            f"i = p * {self._plane} + k",
            f"q = p * {' * '.join(self._sides)}",
        ]
        rest = "k"
        for place, (side, _, stride, pad, _) in reversed(list(enumerate(self._windows))):
            start = f"{rest} % O{side}" if place else rest
            start += f" * {stride}" if stride > 1 else ""
            lines.append(f"x{side} = {start}{f' - {pad}' if pad else ''}")
            rest += f" // O{side}"
        return lines

    @property
    def nest(self) -> list[tuple[str, list[str]]]:
        """A loop for each dimension: the place `r` of each window, whether it lies in the tensor, and where."""
        found, mask, index = [], "m", ""
        for side, kernel, _, pad, dilation in self._windows:
            lines = [f"y{side} = x{side} + r{side}{f' * {dilation}' if dilation > 1 else ''}"]
            if pad or self.window.is_ceil:
                first = f" & (y{side} >= 0)" if pad else ""
                lines.append(f"n{side} = {mask}{first} & (y{side} < {side})")
                mask = f"n{side}"
            if side != "W":
                after = self._sides[self._sides.index(side) + 1]
                lines.append(f"j{side} = ({index} + y{side}) * {after}" if index else f"j{side} = y{side} * {after}")
                index = f"j{side}"
            found.append((f"for r{side} in tl.static_range({kernel}):", lines))
        return found

    @property
    def mask(self) -> str:
        masked = [side for side, _, _, pad, _ in self._windows if pad or self.window.is_ceil]
        return f"n{masked[-1]}" if masked else ""

    @property
    def constants(self) -> dict[str, str]:
        places, plane = prod(self.window.kernel), prod(self.made[2:])
        block = LARGE_BLOCK if self.window.stride[-1] == 1 and places <= MUCH else BLOCK
        return {"BLOCK": str(next((size for size in (LEAST_BLOCK, BLOCK) if size >= plane), block))}

    def grid(self, lead: str) -> str:
        return f"{lead}.shape[:2].numel() * triton.cdiv({self._plane}, {self.constants['BLOCK']}),"

    def sizes(self, lead: str, used: str) -> dict[str, str]:
        found = super().sizes(lead, used)
        for place, side in enumerate(self._sides, 2):
            found |= {side: f"{lead}.shape[{place}]", f"O{side}": f"o.shape[{place}]"}
        return found

    def output(self, lead: str, shape: Shape) -> str | None:
        if shape != self.made:
            return None
        sides = [f"*{lead}.shape[:2]"]
        for place, (_, kernel, stride, pad, dilation) in enumerate(self._windows, 2):
            over = f" + 2 * {pad}" * (pad > 0)
            over += f" - {kernel}" if dilation == 1 else f" - {dilation} * ({kernel} - 1) - 1"
            inside = f"{lead}.shape[{place}]{over}"
            if stride > 1:
                inside = f"triton.cdiv({inside}, {stride})" if self.window.is_ceil else f"({inside}) // {stride}"
            sides.append(f"{inside} + 1")
        return f"{lead}.new_empty(({', '.join(sides)}))"
