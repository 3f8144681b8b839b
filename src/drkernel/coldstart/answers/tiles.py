"""Lines that multiply matrices or convolve, with the point-wise lines behind them, as one kernel of tiles.

    t0 = self.m0(in0)  # F.linear(...)          a = tl.dot(x, y, a, input_precision='tf32x3')
    t1 = F.relu(t0)                       ->    t0 = a + p1
                                                t1 = tl.maximum(t0, 0.0)

Three products in TF32 err less than one in fp32, and tensor cores make them faster than the library its fp32 (1.3 to
1.6 times for large sizes on an H200). The right factor lies along the dimension that is summed, as they want it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from drkernel.coldstart.answers.flat_tiles import Flat
from drkernel.coldstart.answers.known import Known
from drkernel.coldstart.answers.product_lines import Product, product_of
from drkernel.coldstart.answers.steps import Step
from drkernel.coldstart.answers.tile_text import Place, Tile, Tiles
from drkernel.coldstart.answers.window_tiles import Phases, Places
from drkernel.policy.canonical.told import Line

LIBRARY = 50e12
"""Operations per second of the library's products in fp32 on an H200."""
ALIGNED = 16
"""Triton loads by 16 bytes where it knows that a row's length is a multiple of this many elements."""
LEAST_COPIED = 256
"""Terms from which on it costs little to copy factors into rows of such a length."""
FEW_TILES = 2.0
"""Of the library's time, from which on few tiles are the reason."""
SPLITS = 32
"""Programs that share a tile where there are few."""
FEW = 32
"""Channels below which one loop over them and the places is as fast."""


@dataclass(frozen=True)
class Matrices(Tiles):
    """A product of matrices."""

    rates: ClassVar[Mapping[Tile, float]] = {Tile(128): 75e12, Tile(64): 57e12}
    allocation: ClassVar[str] = "new_empty"
    """The method that makes the output."""

    @property
    def terms_range(self) -> str:
        """The range of a program's loop."""
        return f"0, K, {self.tile.terms}"

    @property
    def has_rows(self) -> bool:
        return not self.product.is_batched

    @property
    def grids(self) -> int:
        return prod(self.shape[:-2]) if self.product.is_batched else 1

    @property
    def library_s(self) -> float:
        return 2 * prod(self.shape) * self.product.inner / LIBRARY

    @property
    def warps(self) -> int:
        return self.tile.rows // 16

    @property
    def third(self) -> str:
        return f"{self.left}.shape[:-2].numel()" if self.product.is_batched else ""

    @property
    def taken(self) -> list[str]:
        return ["M", "N", "K"]

    @property
    def _is_copied(self) -> bool:
        """Whether the factors are copied into longer rows, in which other elements lie elsewhere."""
        return bool(self.product.inner % ALIGNED)

    def place(self, name: str, step: Step) -> Place | None:
        is_factor = name in (self.product.left, self.product.right)
        return None if self._is_copied and is_factor else super().place(name, step)

    @property
    def wrapper(self) -> list[str]:
        left, right, is_batched = self.left, self.right, self.product.is_batched
        odd = [left, right] * self._is_copied
        return [
            *[f"{right} = {right}.transpose(-1, -2).contiguous()"] * self.product.is_turned,
            *(f"{name} = F.pad({name}, (0, -{name}.shape[-1] % {ALIGNED}))" for name in odd),
            f"N = {right}.shape[{-2 if is_batched else 0}]",
            f"K = {left}.shape[-1]",
            f"M = {left}.shape[-2]" if is_batched else f"M = {left}.numel() // K",
            f"o = {left}.{self.allocation}((*{left}.shape[:-1], N))",
        ]

    @property
    def body(self) -> list[str]:
        is_batched, terms, left, right = self.product.is_batched, self.tile.terms, self.left, self.right
        row, column = ("(b * M + r)", "(b * N + c)") if is_batched else ("r", "c")
        return [
            *self.corner,
            *["b = tl.program_id(2)"] * is_batched,
            *self.loop(
                self.terms_range,
                f"j = s + tl.arange(0, {terms})",
                f"x = tl.load({left}_ptr + {row} * K + j[None, :], mask=(r < M) & (j[None, :] < K), other=0.0)",
                f"y = tl.load({right}_ptr + {column} * K + j[:, None], mask=(c < N) & (j[:, None] < K), other=0.0)",
            ),
            f"i = {row} * N + c",
        ]


class SplitK(Matrices):
    """A product of few tiles, each the sum of what several programs add to it. Nothing follows in its kernel."""

    store: ClassVar[str] = "tl.atomic_add"
    allocation: ClassVar[str] = "new_zeros"

    @property
    def grids(self) -> int:
        return SPLITS

    @property
    def rows(self) -> int:
        return prod(self.shape) // self.product.columns

    def terms(self, at_a_time: int) -> float:
        return super().terms(at_a_time) / SPLITS

    @property
    def third(self) -> str:
        return str(SPLITS)

    @property
    def terms_range(self) -> str:
        return f"tl.program_id(2) * {self.tile.terms}, K, {SPLITS * self.tile.terms}"

    def fits(self, step: Step) -> bool:
        return False


def kind_of(product: Product, at_any_cost: bool = False) -> type[Tiles] | None:
    """The kernel of a product; None where it could save nothing: factors would not be loaded by 16 bytes and are too
    short to be copied, each channel has a sum of its own, or most of its terms are none."""
    if not product.windows:
        is_short = product.inner % ALIGNED and product.inner < LEAST_COPIED
        return None if is_short and not at_any_cost else Matrices
    channels = product.inner // prod(window.kernel for window in product.windows)
    if product.groups > 1 and channels == 1 and not (at_any_cost and product.is_transposed):
        return None
    if product.is_transposed:
        strided = [window for window in product.windows if window.stride > 1]
        if strided and product.groups == 1 and all(window.dilation == 1 for window in strided):
            return Phases
        return None if (strided or channels % ALIGNED) and not at_any_cost else Places
    return Flat if channels % ALIGNED or channels < FEW else Places


def tiles(lines: Sequence[Line], steps: Sequence[Step], known: Known, at_any_cost: bool = False) -> Iterator[Tiles]:
    """A kernel for each product that it makes faster, with as much of what follows as it can compute.

    Args:
        at_any_cost: also for those that it makes slower.
    """
    uses = Counter(name for line in lines for name in line.reads)
    for line in lines:
        product = product_of(line, known)
        if product is None or (kind := kind_of(product, at_any_cost)) is None:
            continue
        best = grown = kind((), {}, product, known)
        for step in steps:
            if grown.fits(step):
                grown = replace(grown, steps=(*grown.steps, step))
                best = grown if grown.is_whole(uses) else best
        if best.gain_s:
            yield best
        elif at_any_cost:
            is_long = kind is Matrices and best.seconds(best.tile) > FEW_TILES * best.library_s
            splits = is_long and not product.bias and not product.is_batched
            yield SplitK((), {}, product, known) if splits else best
