"""What kernels of tiles have in common, whatever product they compute: where values lie, what they save, their text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod
from typing import ClassVar

from drkernel.coldstart.answers.kernel_text import EMPTY, KernelText
from drkernel.coldstart.answers.known import Known
from drkernel.coldstart.answers.product_lines import Product
from drkernel.coldstart.answers.steps import Step

SMS, TILES_PER_SM = 132, 2
BYTES_PER_S = 4.4e12
Shape = tuple[int, ...]
Place = tuple[str, str]
"""An index and a mask; no mask where it is empty."""
UNIT_S = 0.18e-12
"""Of `Group.saved`: a tenth of the time that an element takes to be written and read again."""
LEAST_GAIN = 0.05
"""Of the library's time, that a kernel must save."""


@dataclass(frozen=True)
class Tile:
    """What a program computes: so many rows and columns, from so many terms at a time."""

    rows: int
    columns: int = 64
    terms: int = 32


@dataclass(frozen=True)
class Tiles(KernelText):
    """A product and the steps that its kernel computes of each of its elements."""

    product: Product
    known: Known
    rates: ClassVar[Mapping[Tile, float]] = {}
    """Operations per second on an H200, by tile."""
    store: ClassVar[str] = "tl.store"
    """What a program does with its results."""
    column: ClassVar[int] = -1
    """The dimension of the output that the right factor's columns are."""

    @property
    def made(self) -> list[str]:
        return [self.product.makes, *super().made]

    @cached_property
    def outside(self) -> list[str]:
        made = set(self.made)
        first = [self.product.left, self.product.right, *[self.product.bias] * bool(self.product.bias)]
        read = dict.fromkeys([*first, *(name for step in self.steps for name in step.operands if name not in made)])
        return sorted(read, key=lambda name: name.startswith("self."))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return self.known.shapes[self.product.makes]

    @property
    def left(self) -> str:
        return self.name(self.product.left)

    @property
    def right(self) -> str:
        return self.name(self.product.right)

    @property
    def row_shapes(self) -> list[Shape]:
        """Shapes of values of which there is one for all columns: with a one in their place, then without; empty where
        none may be made."""
        return []

    @property
    def row(self) -> Place:
        """Where such values lie."""
        return "r", "r < M"

    @property
    def is_reduced(self) -> bool:
        """Whether it makes such a value."""
        return self.known.shapes[self.makes] in self.row_shapes

    def place(self, name: str, step: Step) -> Place | None:
        """Where in a tensor beside the product the element lies, and the mask."""
        shape = (step.own or {}).get(name) or self.known.shapes.get(name)
        is_turned = self.product.is_turned and name == self.product.right
        if shape is None or name in self.known.dtypes or is_turned:
            return None
        if prod(shape) == 1:
            return "0", ""
        if not step.over and (made := self.known.shapes[step.makes]) in self.row_shapes:
            return self.row if shape == made else None
        if shape == self.shape:
            return "i", "m"
        shape = (1,) * (len(self.shape) - len(shape)) + shape
        column = self.column % len(self.shape)
        if all(side == 1 for place, side in enumerate(shape) if place != column):
            return self.across, "c < N"
        return self.row if shape == (*self.shape[:column], 1, *self.shape[column + 1 :]) and self.has_rows else None

    @property
    def across(self) -> str:
        """Where in a tensor with one number for each column that of a program's columns lies."""
        return "c"

    @property
    def has_rows(self) -> bool:
        """Whether what belongs to a row of the output has a place."""
        return bool(self.row_shapes)

    def fits(self, step: Step) -> bool:
        """Whether it can compute the step, too."""
        made, shape = set(self.made), self.known.shapes[step.makes]
        if (
            step.is_view
            or step.after
            or step.window
            or step.makes in self.known.dtypes
            or not made & set(step.operands)
        ):
            return False
        if shape not in (self.shape, *self.row_shapes) or (step.over and not self._reduces(step)):
            return False
        met = [shape, self.shape] if step.over else [shape, *self.row_shapes[:1] * (shape == self.shape)]
        known = self.known.shapes
        return all(known[name] in met if name in made else self.place(name, step) for name in step.operands)

    def _reduces(self, step: Step) -> bool:
        """Whether it can compute a reduction: over the columns, all of which a program has."""
        column = self.column % len(self.shape)
        if not self.row_shapes or step.over != (column, column) or step.groups or step.parts != 1:
            return False
        if not all(kind in ("", *EMPTY) for _, kind, _ in step.recipe) or not self._tiles_of(is_whole=True):
            return False
        return replace(self, steps=(*self.steps, step)).gain_s > 0.0

    def _tiles_of(self, is_whole: bool) -> list[Tile]:
        """All tiles, or those that have all columns."""
        return [tile for tile in self.rates if not is_whole or tile.columns >= self.product.columns]

    # What it saves

    @property
    def grids(self) -> int:
        """Grids of tiles in a launch."""
        return 1

    @property
    def rows(self) -> int:
        """Of a grid."""
        return prod(self.shape) // self.product.columns // self.grids

    def terms(self, at_a_time: int) -> float:
        """That an element is the sum of, in whole steps of the loop; on average."""
        return ceil(self.product.inner / at_a_time) * at_a_time

    def seconds(self, tile: Tile) -> float:
        """Of its kernel."""
        programs = self.grids * ceil(self.rows / tile.rows) * ceil(self.product.columns / tile.columns)
        work = 2 * programs * tile.rows * tile.columns * self.terms(tile.terms)
        return work / self.rates[tile] / min(1.0, programs / SMS / TILES_PER_SM)

    @property
    def library_s(self) -> float:
        """Seconds of the library's kernel where it fills the GPU."""
        raise NotImplementedError

    @cached_property
    def tile(self) -> Tile:
        return min(self._tiles_of(self.has_whole_rows), key=self.seconds)

    @property
    def has_whole_rows(self) -> bool:
        """Whether a program has all columns, as a reduction needs."""
        return any(step.over for step in self.steps)

    @property
    def gain_s(self) -> float:
        """Seconds that it saves; none where that is too little."""
        number = prod(self.shape)
        library = self.library_s / min(1.0, max(0.25, number / 64**2 / SMS))
        gain = library - self.seconds(self.tile) + 8 * number / BYTES_PER_S * bool(self.steps)
        return gain if gain > LEAST_GAIN * library else 0.0

    @property
    def saved(self) -> int:
        """In the unit of `Group.saved`."""
        return int(self.gain_s / UNIT_S)

    # The text

    @property
    def warps(self) -> int:
        raise NotImplementedError

    @property
    def wrapper(self) -> list[str]:
        """Of the function that launches it: the factors as they are loaded, the sizes and the output."""
        raise NotImplementedError

    @property
    def taken(self) -> list[str]:
        """Names of the sizes."""
        raise NotImplementedError

    @property
    def body(self) -> list[str]:
        """Of the kernel, up to the product."""
        raise NotImplementedError

    @property
    def third(self) -> str:
        """Of the grid's sizes, where there is one."""
        return ""

    def text(self, number: int) -> str:
        turned = [self.product.right] * self.product.is_turned
        values = [self.name(name) for name in self.outside if not name.startswith("self.") and name not in turned]
        wrapper = [*(f"{name} = {name}.contiguous()" for name in values), *self.wrapper]
        columns: int | str = self.tile.columns
        across = f"triton.cdiv(N, {columns})"
        if self.has_whole_rows:
            columns, across = f"max({columns}, triton.next_power_of_2(N))", "1"
        blocks = {"BM": self.tile.rows, "BN": columns, "num_warps": self.warps}
        grid = f"triton.cdiv(M, {self.tile.rows}), {across}" + (self.third and f", {self.third}")
        body, taken = [*self.body, *self._epilogue()], [*self.taken, *self.told]
        after = ".squeeze(1)" if self.known.shapes[self.makes] in self.row_shapes[1:] else ""
        return self.written(number, body, wrapper, grid, taken, blocks, after)

    @property
    def corner(self) -> list[str]:
        """Statements that say which rows and columns a program has."""
        return [
            "r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]",
            "c = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]",
        ]

    def loop(self, steps: str, *inner: str, mask: str = "(r < M) & (c < N)") -> list[str]:
        """The sum."""
        return [
            "a = tl.zeros((BM, BN), tl.float32)",
            f"for s in range({steps}):",
            *(f"    {line}" for line in inner),
            "    a = tl.dot(x, y, a, input_precision='tf32x3')",
            f"m = {mask}",
        ]

    def _epilogue(self) -> list[str]:
        """What is beside the product, in the order of the signature; the bias, the steps and the store."""
        made = self.name(self.product.makes)
        names, loads, lines = {self.product.makes: made}, {}, []
        if bias := self.product.bias:
            loads[bias] = f"{self.name(bias)}_ptr + {self.across}, mask=c < N"
        lines.append(f"{made} = a" + (f" + {self.name(bias)}" if bias else ""))
        for step in self.steps:
            for operand in step.operands:
                if operand not in names:
                    names[operand] = self.name(operand)
                    where, mask = self.place(operand, step) or ("", "")
                    at = "" if where == "0" else f" + {where}"
                    loads[operand] = f"{names[operand]}_ptr{at}{mask and f', mask={mask}'}"
            names[step.makes] = made = self.name(step.makes)
            for target, kind, text in self.filled(step, names):
                all_columns = f"tl.{kind}(tl.where(c < N, {text}, {EMPTY.get(kind)}), 1, keep_dims=True)"
                lines.append(f"{target} = {all_columns if kind else text}")
        lines = [*(f"{self.name(name)} = tl.load({loads[name]})" for name in self.outside if name in loads), *lines]
        where, mask = self.row if self.is_reduced else ("i", "m")
        return [*lines, f"{self.store}(o_ptr + {where}, {made}, mask={mask})"]
