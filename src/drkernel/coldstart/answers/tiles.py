"""Lines that multiply matrices or convolve, with the point-wise lines behind them, as one kernel of tiles.

    t0 = self.m0(in0)  # F.linear(...)          a = tl.dot(x, y, a, input_precision='tf32x3')
    t1 = F.relu(t0)                       ->    t0 = a + p1
                                                t1 = tl.maximum(t0, 0.0)

Three products in TF32 err less than one in fp32, and tensor cores make them faster than the library its fp32 (1.3 to
1.6 times for large sizes on an H200). The right factor lies along the dimension that is summed, as they want it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod

from drkernel.coldstart.answers.kernel_text import SIDES, KernelText
from drkernel.coldstart.answers.known import Known
from drkernel.coldstart.answers.product_lines import Product, product_of
from drkernel.coldstart.answers.steps import Step
from drkernel.policy.canonical.told import Line

BLOCK_N, BLOCK_K = 64, 32
LIBRARY, TILES = 50e12, {128: 75e12, 64: 57e12}
"""Operations per second on an H200: of products in fp32, and of tiles of so many rows and BLOCK_N columns."""
LIBRARY_CONVOLUTION, CONVOLUTION_TILES = 36e12, {128: 45e12, 64: 40e12}
STRIDED = 0.8
"""What tiles of a convolution with a stride reach of that."""
SMS, TILES_PER_SM = 132, 2
BYTES_PER_S = 4.4e12
UNIT_S = 0.18e-12
"""Of `Group.saved`: a tenth of the time that an element takes to be written and read again."""
ALIGNED = 16
"""Triton loads by 16 bytes where it knows that a row's length is a multiple of this many elements."""
LEAST_GAIN = 0.05
"""Of the library's time, that a kernel must save."""


@dataclass(frozen=True)
class Tiles(KernelText):
    """A product and the steps that its kernel computes of each of its elements."""

    product: Product
    known: Known

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

    def place(self, name: str, step: Step) -> tuple[str, str] | None:
        """Where in a tensor beside the product the element lies, and the mask."""
        shape = (step.own or {}).get(name) or self.known.shapes.get(name)
        is_turned = self.product.is_turned and name == self.product.right
        if shape is None or name in self.known.dtypes or is_turned:
            return None
        if shape == self.shape:
            return "i", "m"
        shape = (1,) * (len(self.shape) - len(shape)) + shape
        column = 1 if self.product.windows else len(self.shape) - 1
        if all(side == 1 for place, side in enumerate(shape) if place != column):
            return ("0", "") if shape[column] == 1 else ("c", "c < N")
        of_rows = shape == (*self.shape[:-1], 1) and not self.product.windows and not self.product.is_batched
        return ("r", "r < M") if of_rows else None

    def fits(self, step: Step) -> bool:
        """Whether it can compute the step, too."""
        made = set(self.made)
        if step.over or step.is_view or step.after or step.window or self.known.shapes[step.makes] != self.shape:
            return False
        if step.makes in self.known.dtypes or not made & set(step.operands):
            return False
        return all(name in made or self.place(name, step) for name in step.operands)

    @cached_property
    def _rows(self) -> int:
        return prod(self.shape) // self.product.columns // self._batch

    @property
    def _batch(self) -> int:
        return prod(self.shape[:-2]) if self.product.is_batched else 1

    def _seconds(self, block_m: int) -> float:
        """Of its kernel."""
        product = self.product
        programs = self._batch * ceil(self._rows / block_m) * ceil(product.columns / BLOCK_N)
        inner = self._places * ceil(product.inner / self._places / BLOCK_K) * BLOCK_K
        padded = programs * block_m * BLOCK_N * inner
        rate = (CONVOLUTION_TILES if product.windows else TILES)[block_m]
        rate *= STRIDED if any(stride > 1 for _, stride, *_ in product.windows) else 1.0
        return 2 * padded / rate / min(1.0, programs / SMS / TILES_PER_SM)

    @cached_property
    def block_m(self) -> int:
        return min(TILES, key=self._seconds)

    @property
    def gain_s(self) -> float:
        """Seconds that it saves; none where that is too little, or where factors are not loaded by 16 bytes."""
        number = prod(self.shape)
        if self.product.inner // self._places % ALIGNED:
            return 0.0
        rate = LIBRARY_CONVOLUTION if self.product.windows else LIBRARY
        library = 2 * number * self.product.inner / rate / min(1.0, max(0.25, number / 64**2 / SMS))
        gain = library - self._seconds(self.block_m) + 8 * number / BYTES_PER_S * bool(self.steps)
        return gain if gain > LEAST_GAIN * library else 0.0

    @property
    def saved(self) -> int:
        """In the unit of `Group.saved`."""
        return int(self.gain_s / UNIT_S)

    def text(self, number: int) -> str:
        product = self.product
        left, right = self.name(product.left), self.name(product.right)
        values = [self.name(value) for value in self.outside if not value.startswith("self.")]
        wrapper = [f"{name} = {name}.contiguous()" for name in values if name != right or not product.is_turned]
        wrapper += [f"{right} = {right}.transpose(-1, -2).contiguous()"] * product.is_turned
        wrapper += [f"{right} = {right}.flatten(2).permute(2, 0, 1).contiguous()"] * (self._places > 1)
        sizes = self._conv_sizes(left) if product.windows else {}
        body = [*(self._conv_body(left, right) if product.windows else self._body(left, right)), *self._epilogue()]
        columns = -2 if product.is_batched else int(self._places > 1)
        wrapper += [f"N = {right}.shape[{columns}]", *self._output(left)]
        wrapper += [f"{size} = {text}" for size, text in sizes.items()]
        taken = ["M", "N", *["K"] * (not product.windows), *sizes, *self.told]
        blocks = {"BM": self.block_m, "BN": BLOCK_N, "num_warps": 4 if product.windows else self.block_m // 16}
        third = f", {left}.shape[:-2].numel()" * product.is_batched
        grid = f"triton.cdiv(M, {self.block_m}), triton.cdiv(N, {BLOCK_N}){third}"
        return self.written(number, body, wrapper, grid, taken, blocks)

    @property
    def _places(self) -> int:
        """Of a window."""
        return prod(kernel for kernel, *_ in self.product.windows)

    def _output(self, left: str) -> list[str]:
        if not self.product.windows:
            columns = "M" if self.product.is_batched else f"{left}.numel() // K"
            rows = f"{left}.shape[-2]" if self.product.is_batched else columns
            return [f"K = {left}.shape[-1]", f"M = {rows}", f"o = {left}.new_empty((*{left}.shape[:-1], N))"]
        sides = []
        for place, (kernel, stride, pad, dilation) in enumerate(self.product.windows, 2):
            over = dilation * (kernel - 1) + 1 - 2 * pad
            inside = f"{left}.shape[{place}]" + (f" - {over}" if over > 0 else f" + {-over}" * (over < 0))
            sides.append(f"({inside}) // {stride} + 1" if stride > 1 else f"{inside} + 1")
        made = f"o = {left}.new_empty(({left}.shape[0], N, {', '.join(sides)}))"
        return [made, "M = o.numel() // N"]

    def _conv_sizes(self, left: str) -> dict[str, str]:
        sizes = {"C": f"{left}.shape[1]"}
        for place, side in enumerate(SIDES[len(self.product.windows)], 2):
            sizes |= {side: f"{left}.shape[{place}]", f"O{side}": f"o.shape[{place}]"}
        return sizes

    def _body(self, left: str, right: str) -> list[str]:
        batch = "b * {} + " if self.product.is_batched else "{}"
        row, column = (f"({batch.format(s)}{n}) " if self.product.is_batched else f"{n} " for s, n in ("Mr", "Nc"))
        return [
            *self._tile,
            *["b = tl.program_id(2)"] * self.product.is_batched,
            *self._loop(
                f"0, K, {BLOCK_K}",
                f"j = s + tl.arange(0, {BLOCK_K})",
                f"x = tl.load({left}_ptr + {row}* K + j[None, :], mask=(r < M) & (j[None, :] < K), other=0.0)",
                f"y = tl.load({right}_ptr + {column}* K + j[:, None], mask=(c < N) & (j[:, None] < K), other=0.0)",
            ),
            f"i = {row}* N + c",
        ]

    def _conv_body(self, left: str, right: str) -> list[str]:
        sides, windows = SIDES[len(self.product.windows)], self.product.windows
        lines, rest = self._tile, "r"
        for side in reversed(sides):
            lines.append(f"x{side} = {rest} % O{side}")
            rest += f" // O{side}"
        lines.append(f"b = {rest}")
        rest_of_places = self._places
        inner = [
            f"t = s // tl.cdiv(C, {BLOCK_K})",
            f"j = s % tl.cdiv(C, {BLOCK_K}) * {BLOCK_K} + tl.arange(0, {BLOCK_K})",
        ]
        inner = inner if self._places > 1 else [f"j = s * {BLOCK_K} + tl.arange(0, {BLOCK_K})"]
        masks, index = ["(r < M)", "(j[None, :] < C)"], "b * C + j[None, :]"
        for side, (kernel, stride, pad, dilation) in zip(sides, windows, strict=True):
            rest_of_places //= kernel
            tap = " // ".join(["t", *[str(rest_of_places)] * (rest_of_places > 1)])
            tap += f" % {kernel}" if rest_of_places * kernel < self._places else ""
            moved = (f"x{side} * {stride}" if stride > 1 else f"x{side}") + f" + {tap}" * (kernel > 1)
            moved += f" * {dilation}" * (dilation > 1 and kernel > 1) + (f" - {pad}" if pad else "")
            inner.append(f"y{side} = {moved}")
            masks += [f"(y{side} >= 0)", f"(y{side} < {side})"] if pad else []
            index = f"({index}) * {side} + y{side}"
        column = "(t * N + c)" if self._places > 1 else "c"
        inner += [
            f"x = tl.load({left}_ptr + {index}, mask={' & '.join(masks)}, other=0.0)",
            f"y = tl.load({right}_ptr + {column} * C + j[:, None], mask=(c < N) & (j[:, None] < C), other=0.0)",
        ]
        steps = f"{self._places} * tl.cdiv(C, {BLOCK_K})" if self._places > 1 else f"tl.cdiv(C, {BLOCK_K})"
        place = "b * N + c"
        for side in sides:
            place = f"({place}) * O{side} + x{side}"
        return [*lines, *self._loop(steps, *inner), f"i = {place}"]

    @property
    def _tile(self) -> list[str]:
        return [
            "r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]",
            "c = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]",
        ]

    def _loop(self, steps: str, *inner: str) -> list[str]:
        return [
            "a = tl.zeros((BM, BN), tl.float32)",
            f"for s in range({steps}):",
            *(f"    {line}" for line in inner),
            "    a = tl.dot(x, y, a, input_precision='tf32x3')",
            "m = (r < M) & (c < N)",
        ]

    def _epilogue(self) -> list[str]:
        """The bias, the steps and the store."""
        lines, names = [], {self.product.makes: self.name(self.product.makes)}
        made = names[self.product.makes]
        if self.product.bias:
            bias = self.name(self.product.bias)
            lines += [f"{bias} = tl.load({bias}_ptr + c, mask=c < N)", f"{made} = a + {bias}"]
        else:
            lines.append(f"{made} = a")
        for step in self.steps:
            for operand in step.operands:
                if operand not in names:
                    names[operand] = self.name(operand)
                    where, mask = self.place(operand, step) or ("", "")
                    at = "" if where == "0" else f" + {where}"
                    lines.append(f"{names[operand]} = tl.load({names[operand]}_ptr{at}{mask and f', mask={mask}'})")
            names[step.makes] = made = self.name(step.makes)
            lines += [f"{target} = {text}" for target, _, text in self.filled(step, names)]
        return [*lines, f"tl.store(o_ptr + i, {made}, mask=m)"]


def tiles(lines: Sequence[Line], steps: Sequence[Step], known: Known) -> Iterator[Tiles]:
    """A kernel for each product that it makes faster, with as much of what follows as it can compute."""
    uses = Counter(name for line in lines for name in line.reads)
    for line in lines:
        product = product_of(line, known)
        if product is None:
            continue
        best = grown = Tiles((), {}, product, known)
        for step in steps:
            if grown.fits(step):
                grown = replace(grown, steps=(*grown.steps, step))
                best = grown if grown.is_whole(uses) else best
        if best.gain_s:
            yield best
