"""Convolutions as kernels of tiles: a row is a place in the output, a column one of its channels.

Places      a loop over the places of the window, and inside of it one over the channels; transposed ones, too, where
            those of strides pass over the places that lie between the input's
Phases      transposed ones with strides: a grid for each remainder of the places in the output, which all need the
            same places of the window

Those of few channels: flat_tiles.py. The rates are those of an H200 (cuDNN in fp32: 28e12 for 64 channels, 37e12 for
128).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import ClassVar

from drkernel.coldstart.answers.kernel_text import SIDES
from drkernel.coldstart.answers.tile_text import Place, Shape, Tile, Tiles
from drkernel.hardware.windows import slowness
from drkernel.policy.canonical.formulas import Window, factor, factors, input_place, output_side, signed

LIBRARY = 30e12
"""Operations per second of cuDNN in fp32 at full speed."""
TURNED_GAIN = 1.4
"""How much faster transposed ones without strides are than convolutions with the weight turned. The judge's model has
one price for both, else one would be written as the other."""
STORE_S = 3e-12
"""That each element of the output takes besides, in the library's kernels and in these."""
RATES = {(128, 128): 65e12, (128, 64): 55e12, (64, 64): 51e12, (128, 32): 40e12, (128, 16): 22e12}
"""Of tiles, by rows and columns."""
STRIDED, SHORT_STEPS, UNALIGNED = 0.85, 0.85, 0.4
"""What tiles reach of that with strides, with steps of 16 terms, and where rows of the right factor are not loaded
by 16 bytes."""


@dataclass(frozen=True)
class Places(Tiles):
    """A convolution by the places of its window."""

    rates: ClassVar[Mapping[Tile, float]] = {
        Tile(*sides, terms): rate * (SHORT_STEPS if terms == 16 else 1.0)
        for sides, rate in RATES.items()
        for terms in (32, 16)
    }
    column: ClassVar[int] = 1
    pads: ClassVar[bool] = True
    """Whether the kernel knows of the padding."""

    @property
    def windows(self) -> Sequence[Window]:
        return self.product.windows

    @property
    def row_shapes(self) -> list[Shape]:
        batch, _, *sides = self.shape
        return [(batch, 1, *sides), (batch, *sides)] if self.product.columns > 1 and not self._of_groups else []

    @property
    def _of_groups(self) -> str:
        """What sizes of all groups are divided by; empty where there is one."""
        return f" // {self.product.groups}" * (self.product.groups > 1)

    @property
    def across(self) -> str:
        return "g * N + c" if self._of_groups else "c"

    @property
    def batch(self) -> str:
        """The place in the batch, or of a group in it."""
        return f"(b * {self.product.groups} + g)" if self._of_groups else "b"

    @property
    def grids(self) -> int:
        return self.product.groups

    @property
    def third(self) -> str:
        return str(self.product.groups) if self._of_groups else ""

    @property
    def corner(self) -> list[str]:
        return [*super().corner, *["g = tl.program_id(2)"] * bool(self._of_groups)]

    @property
    def sides(self) -> str:
        return SIDES[len(self.windows)]

    @property
    def places(self) -> int:
        """Of a window."""
        return prod(window.kernel for window in self.windows)

    @property
    def channels(self) -> int:
        return self.product.inner // self.places

    # What it saves

    def terms(self, at_a_time: int) -> float:
        return self.places * ceil(self.channels / at_a_time) * at_a_time

    def seconds(self, tile: Tile) -> float:
        is_strided = any(window.stride > 1 for window in self.windows) and not self.product.is_transposed
        return super().seconds(tile) / (STRIDED if is_strided else 1.0) + STORE_S * prod(self.shape)

    @property
    def library_s(self) -> float:
        product, is_turned = self.product, self.product.is_transposed
        is_slow = any(window.stride > 1 for window in self.windows) or len(self.windows) > 2
        slower = slowness(product.columns, self.channels, self.places, product.groups, is_turned, is_slow)
        slower /= TURNED_GAIN if is_turned and not is_slow and product.groups == 1 else 1.0
        rows = prod(self.known.shapes[product.left]) // self.channels
        rows = rows if is_turned else prod(self.shape) // product.columns
        return 2 * rows * product.columns * product.inner / LIBRARY * slower + STORE_S * prod(self.shape)

    # The text

    @property
    def warps(self) -> int:
        return 8 if self.tile.columns > 64 else 4

    @property
    def _is_flat(self) -> bool:
        """Whether the weight is taken as it is."""
        return self.places == 1 and not self.product.is_transposed

    @property
    def wrapper(self) -> list[str]:
        right = self.right
        order = "permute(2, 1, 0)" if self.product.is_transposed else "permute(2, 0, 1)"
        if self.product.is_transposed and self._of_groups:
            order = f"unflatten(0, ({self.product.groups}, -1)).permute(3, 0, 2, 1).flatten(1, 2)"
        return [
            *[f"{right} = {right}.flatten(2).{order}.contiguous()"] * (not self._is_flat),
            f"N = {right}.shape[{int(not self._is_flat)}]{self._of_groups}",
            self.output,
            *self.sizes,
        ]

    @property
    def output(self) -> str:
        columns = "1" if self.is_reduced else f"N * {self.product.groups}" if self._of_groups else "N"
        return f"o = {self.left}.new_empty(({self.left}.shape[0], {columns}, {self._sides}))"

    @property
    def sizes(self) -> list[str]:
        """Formulas of the numbers that the kernel takes."""
        rows = "o.numel()" if self.is_reduced else f"o.numel() // N{self._of_groups}"
        return [f"M = {rows}", *(f"{size} = {text}" for size, text in self._lengths.items())]

    @property
    def _lengths(self) -> dict[str, str]:
        found = {"C": f"{self.left}.shape[1]{self._of_groups}"}
        for place, side in enumerate(self.sides, 2):
            found |= {side: f"{self.left}.shape[{place}]", f"O{side}": f"o.shape[{place}]"}
        return found

    @property
    def taken(self) -> list[str]:
        return ["M", "N", *self._lengths]

    @property
    def _sides(self) -> str:
        return ", ".join(self._side(dim) for dim in range(len(self.windows)))

    def _side(self, dim: int) -> str:
        """The formula of a side of the output, in the numbers that the task gives: a policy copies better than it
        calculates."""
        size = f"{self.left}.shape[{dim + 2}]"
        return output_side(self.windows[dim], size, self.product.is_transposed, self.pads)

    @property
    def where(self) -> list[str]:
        """Statements that say where in the output the rows lie."""
        lines, rest = [], "r"
        for side in reversed(self.sides):
            lines.append(f"x{side} = {rest} % O{side}")
            rest += f" // O{side}"
        return [*lines, f"b = {rest}"]

    def _taps(self, steps: str) -> list[str]:
        """Statements in the loop: which place of the window and which channels a step has."""
        terms = self.tile.terms
        if self.places == 1 and steps == "1":
            return [f"j = s * {terms} + tl.arange(0, {terms})"]
        return [f"t = s // tl.cdiv(C, {terms})", f"j = s % tl.cdiv(C, {terms}) * {terms} + tl.arange(0, {terms})"]

    @property
    def body(self) -> list[str]:
        place_of = lambda dim, side: input_place(self.windows, dim, side, self.product.is_transposed)
        moved = [f"y{side} = {place_of(dim, side)}" for dim, side in enumerate(self.sides)]
        if self.product.is_transposed:
            strided = [(side, w.stride) for side, w in zip(self.sides, self.windows, strict=True) if w.stride > 1]
            moved += [f"y{side} = tl.where(y{side} % {step} == 0, y{side} // {step}, -1)" for side, step in strided]
        steps = factors(window.kernel for window in self.windows)
        place = "t * N" if self.places > 1 else ""
        if self._of_groups:
            place = f"(t * {self.product.groups} + g) * N" if self.places > 1 else "g * N"
        return self.written_body(steps, [*self._taps(steps), *moved], place)

    def written_body(self, steps: str, inner: Sequence[str], place: str, mask: str = "(r < M) & (c < N)") -> list[str]:
        """The loop and what is around it.

        Args:
            steps: how many places of the window there are.
            inner: statements that say which of them a step has, and where in the input its rows lie.
            place: where in the weight this place begins, as columns; empty where there is but one.
        """
        masks = ["(r < M)", "(j[None, :] < C)"]
        index, stored = f"{self.batch} * C + j[None, :]", f"{self.batch} * N + c"
        for side, window in zip(self.sides, self.windows, strict=True):
            is_inside = not window.padding and not self.product.is_transposed
            masks += [] if is_inside else [f"(y{side} >= 0)", f"(y{side} < {side})"]
            index, stored = f"({index}) * {side} + y{side}", f"({stored}) * O{side} + x{side}"
        column = f"({place} + c)" if place else "c"
        count = f"{steps} * tl.cdiv(C, {self.tile.terms})" if steps != "1" else f"tl.cdiv(C, {self.tile.terms})"
        inner = [
            *inner,
            f"x = tl.load({self.left}_ptr + {index}, mask={' & '.join(masks)}, other=0.0)",
            f"y = tl.load({self.right}_ptr + {column} * C + j[:, None], mask=(c < N) & (j[:, None] < C), other=0.0)",
        ]
        return [*self.corner, *self.where, *self.loop(count, *inner, mask=mask), f"i = {stored}"]


class Phases(Places):
    """A transposed convolution whose places in the output differ by what they need of the window."""

    @property
    def row(self) -> Place:
        index = "b"
        for side in self.sides:
            index = f"{factor(index)} * O{side} + x{side}"
        return index, f"(r < M){self._inside}"

    @property
    def _inside(self) -> str:
        """The rest of a mask: rows may lie outside."""
        return "".join(f" & (x{side} < O{side})" for side, _ in self._strided)

    @property
    def _strided(self) -> list[tuple[str, Window]]:
        return [(side, window) for side, window in zip(self.sides, self.windows, strict=True) if window.stride > 1]

    @property
    def grids(self) -> int:
        return prod(window.stride for _, window in self._strided)

    @property
    def rows(self) -> int:
        sides = zip(self.shape[2:], self.windows, strict=True)
        return self.shape[0] * prod(ceil(side / window.stride) for side, window in sides)

    def terms(self, at_a_time: int) -> float:
        return super().terms(at_a_time) / self.grids

    def seconds(self, tile: Tile) -> float:
        return super().seconds(tile) / (UNALIGNED if self.channels % 16 else 1.0)

    @property
    def third(self) -> str:
        return str(self.grids)

    @property
    def _counts(self) -> dict[str, str]:
        """How many rows there are along each dimension."""
        return {
            side: f"Q{side}" if window.stride > 1 else f"O{side}"
            for side, window in zip(self.sides, self.windows, strict=True)
        }

    @property
    def _lengths(self) -> dict[str, str]:
        return super()._lengths | {
            f"Q{side}": f"triton.cdiv(O{side}, {window.stride})" for side, window in self._strided
        }

    @property
    def sizes(self) -> list[str]:
        lengths = [f"{size} = {text}" for size, text in self._lengths.items()]
        return [*lengths, f"M = {self.left}.shape[0] * {' * '.join(self._counts.values())}"]

    @property
    def where(self) -> list[str]:
        lines, rest = [], "tl.program_id(2)"
        for place, (side, window) in enumerate(reversed(self._strided), 1):
            lines.append(f"z{side} = {rest}" + f" % {window.stride}" * (place < len(self._strided)))
            rest += f" // {window.stride}"
        rest = "r"
        for side, window in zip(reversed(self.sides), reversed(self.windows), strict=True):
            moved = f" * {window.stride} + z{side}" * (window.stride > 1)
            lines.append(f"x{side} = {rest} % {self._counts[side]}{moved}")
            rest += f" // {self._counts[side]}"
        lines.append(f"b = {rest}")
        for side, window in self._strided:
            first = f"(z{side} + {window.padding}) % {window.stride}" if window.padding else f"z{side}"
            lines += [f"a{side} = {first}", f"n{side} = tl.cdiv({window.kernel} - a{side}, {window.stride})"]
        return lines

    @property
    def body(self) -> list[str]:
        counts = [
            f"n{side}" if w.stride > 1 else str(w.kernel) for side, w in zip(self.sides, self.windows, strict=True)
        ]
        inner, place = self._taps(""), ""
        rests = ["t"]
        for count in reversed(counts[1:]):
            rests.insert(0, f"{rests[0]} // {count}")
        taps = [
            f"{rest} % {count}" if dim else rest for dim, (rest, count) in enumerate(zip(rests, counts, strict=True))
        ]
        for side, window, tap in zip(self.sides, self.windows, taps, strict=True):
            inner.append(f"k{side} = {tap}" + f" * {window.stride} + a{side}" * (window.stride > 1))
            place = f"{factor(place)} * {window.kernel} + k{side}" if place else f"k{side}"
        for side, window in zip(self.sides, self.windows, strict=True):
            step = f"k{side}" + f" * {window.dilation}" * (window.dilation > 1)
            moved = f"x{side}{signed(window.padding)} - {step}"
            inner.append(f"y{side} = ({moved}) // {window.stride}" if window.stride > 1 else f"y{side} = {moved}")
        return self.written_body(" * ".join(counts), inner, f"{factor(place)} * N", f"(r < M) & (c < N){self._inside}")
