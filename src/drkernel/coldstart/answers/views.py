"""How a kernel goes through a tensor that it reduces, and which view a kernel of given steps has.

Rows        what is reduced lies side by side; ShortRows: several rows a program; LongRows: a loop over a row
Columns     what is reduced lies apart; LongColumns: a loop over it
Whole       everything is reduced: a program leaves its part, and PyTorch joins these
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from drkernel.coldstart.answers.known import Shapes
from drkernel.coldstart.answers.steps import Step
from drkernel.coldstart.answers.view import ByChannel, Channels, Last, Maps, MapsByChannel, Place, Shape, View

LEAST_PROGRAMS = 64
"""With fewer a GPU is mostly idle."""
SHORT = 512
"""Elements up to which a program has several rows, and from which on one channel is enough for it."""
LONG_ROW, LONG_COLUMN = 16384, 256
"""Elements from which on a program goes through them in a loop; twice as long rows where it writes none of that length,
and has registers for one."""


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

    def carried(self, number: str) -> str:
        return f"tl.full((1, COLS), {number}, tl.float32)"

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


class Whole(View):
    @property
    def of_rows(self) -> list[Shape]:
        return [()]

    @property
    def row(self) -> Place:
        return "tl.program_id(0)", ""

    @property
    def constants(self) -> dict[str, str]:
        return {"BLOCK": "4096", "num_warps": "8"}

    def grid(self, lead: str) -> str:
        return "triton.cdiv(T, 4096),"

    def output(self, lead: str, shape: Shape) -> str | None:
        return f"{lead}.new_empty(triton.cdiv({lead}.numel(), 4096))"

    def _total(self, lead: str) -> str:
        return f"{lead}.numel()"


def views(steps: tuple[Step, ...], shapes: Shapes, least: int = LEAST_PROGRAMS) -> Iterator[View]:
    """Those that a kernel of these steps may have, the simplest first. least: programs of one that reduces."""
    reductions = {(s.over, s.groups, s.parts, shapes[s.operands[0]]) for s in steps if s.over}
    if not reductions:
        shape = max((shapes[step.makes] for step in steps), key=prod)
        yield View(shape)
        long = prod(shape[2:]) >= SHORT
        if len(shape) > 2:
            yield ByChannel(shape) if long else Channels(shape)
        yield Last(shape)
        if len(shape) > 2:
            yield MapsByChannel(shape) if long else Maps(shape)
    elif len(reductions) == 1:
        over, groups, parts, shape = next(iter(reductions))
        if over == (0, len(shape) - 1) and steps[-1].over and steps[-1].after:
            yield Whole(shape, over)
            return
        long_row = LONG_ROW if shapes[steps[-1].makes] == shape else 2 * LONG_ROW
        if (view := _reducing(shape, over or (0, 0), groups, parts, long_row, least)) is not None:
            yield view


def _reducing(shape: Shape, over: tuple[int, int], groups: str, parts: int, long_row: int, least: int) -> View | None:
    """The view of a reduction; None where nothing is reduced, or by too few programs."""
    whole = Rows(shape, over, groups, parts)
    inner = prod(shape[over[1] + 1 :])
    if whole.number < 2:
        return None
    if over[1] < len(shape) - 1:
        programs = prod(shape[: over[0]]) * -(-inner // 128)
        kind: type[View] = Columns if whole.number <= LONG_COLUMN else LongColumns
        return kind(shape, over) if programs >= least else None
    kind = ShortRows if whole.number <= SHORT else Rows if whole.number <= long_row else LongRows
    return kind(shape, over, groups, parts) if prod(shape) // whole.number >= least else None


def _power_of_2(number: int) -> int:
    """The least that is not below the number."""
    return 1 << (number - 1).bit_length()
