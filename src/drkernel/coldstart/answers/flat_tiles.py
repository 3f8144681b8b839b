"""Convolutions of few channels as kernels of tiles: one loop over the channels and the places of the window."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod
from typing import ClassVar

from drkernel.coldstart.answers.tile_text import BYTES_PER_S, Tile
from drkernel.coldstart.answers.window_tiles import RATES, Places
from drkernel.policy.canonical.formulas import divided, factor, factors

FLAT = 0.75
"""What tiles reach of RATES."""


class Flat(Places):
    """A convolution of few channels; its input is padded before."""

    rates: ClassVar[Mapping[Tile, float]] = {
        Tile(*sides, terms): FLAT * rate for sides, rate in RATES.items() for terms in (32, 16)
    }
    pads: ClassVar[bool] = False

    def terms(self, at_a_time: int) -> float:
        return ceil(self.product.inner / at_a_time) * at_a_time

    def seconds(self, tile: Tile) -> float:
        padded = any(window.padding for window in self.windows)
        copied = 8 * prod(self.known.shapes[self.product.left]) / BYTES_PER_S * padded
        return super().seconds(tile) + copied

    @property
    def wrapper(self) -> list[str]:
        left, right = self.left, self.right
        pads = [str(window.padding) for window in reversed(self.windows) for _ in range(2)]
        padded = [f"{left} = F.pad({left}, ({', '.join(pads)}))"] * any(window.padding for window in self.windows)
        return [
            *padded,
            f"{right} = F.pad({right}.flatten(1), (0, -{right}[0].numel() % 16))",
            f"N = {right}.shape[0]{self._of_groups}",
            self.output,
            *self.sizes,
        ]

    @property
    def _lengths(self) -> dict[str, str]:
        return super()._lengths | {"K": f"{self.right}.shape[1]"}

    @property
    def body(self) -> list[str]:
        base, stored = f"{self.batch} * C", f"{self.batch} * N + c"
        kernels, column = [window.kernel for window in self.windows], factor(self.across)
        for side, window in zip(self.sides, self.windows, strict=True):
            step = f"x{side} * {window.stride}" if window.stride > 1 else f"x{side}"
            base, stored = f"{factor(base)} * {side} + {step}", f"({stored}) * O{side} + x{side}"
        taps = [divided("j", kernels)]
        for dim, window in enumerate(self.windows):
            tap = divided("j", kernels[dim + 1 :]) + f" % {window.kernel}"
            taps.append((tap + f" * {window.dilation}" * (window.dilation > 1)) * (window.kernel > 1))
        moved = taps[0]
        for side, tap in zip(self.sides, taps[1:], strict=True):
            moved = f"{factor(moved)} * {side}" + (f" + {tap}" if tap else "")
        return [
            *self.corner,
            *self.where,
            f"i = {base}",
            *self.loop(
                f"0, K, {self.tile.terms}",
                f"j = s + tl.arange(0, {self.tile.terms})",
                f"k = {moved}",
                f"x = tl.load({self.left}_ptr + i + k[None, :], "
                f"mask=(r < M) & (j[None, :] < C * {factors(kernels)}), other=0.0)",
                f"y = tl.load({self.right}_ptr + {column} * K + j[:, None], "
                "mask=(c < N) & (j[:, None] < K), other=0.0)",
            ),
            f"i = {stored}",
        ]
