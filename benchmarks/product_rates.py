"""How fast a GPU multiplies in fp32, by the library and by tiles of tl.dot in each form.

    python benchmarks/product_rates.py OUT

OUT/rates.jsonl has a line for each shape, form and tile: milliseconds (median of five), how often the library takes as
long, and the largest error beside the sum of absolute products, in fp64. Prints the fastest tiles of each form.
From its figures come the rates of coldstart/answers/tiles.py and of the simulated device (judge/devices/simulated).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

FORMS = ("ieee", "tf32", "tf32x3")
TILES = [(64, 64), (128, 64), (64, 128), (128, 128)]
PRODUCTS = [(4096, 4096, 4096), (1024, 8192, 8192), (128, 4096, 4096), (16384, 512, 1024), (512, 512, 8192)]
"""Rows, inner size and columns."""
CONVOLUTIONS = [
    (16, 64, 128, 128, 3, 1, 0), (32, 64, 64, 64, 3, 1, 1), (64, 32, 64, 64, 3, 1, 1), (32, 128, 56, 128, 3, 1, 1),
    (16, 256, 28, 256, 3, 1, 1), (64, 64, 56, 256, 1, 1, 0), (64, 16, 128, 32, 3, 1, 1), (32, 64, 112, 128, 3, 2, 1),
]  # fmt: skip
"""Batch, channels, side, channels of the output, side of the window, stride, padding."""


@triton.jit
def product(
    x, y, o, M, N, K, along_k, along_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FORM: tl.constexpr
):
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    c = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    a = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        j = s + tl.arange(0, BK)
        left = tl.load(x + r * K + j[None, :], mask=(r < M) & (j[None, :] < K), other=0.0)
        right = tl.load(y + j[:, None] * along_k + c * along_n, mask=(c < N) & (j[:, None] < K), other=0.0)
        a = tl.dot(left, right, a, input_precision=FORM)
    tl.store(o + r * N + c, a, mask=(r < M) & (c < N))


@triton.jit
def convolution(
    x, y, o, M, N, C, T, H, W, OH, OW, PAD, STRIDE, SIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    c = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    across, down, b = r % OW, r // OW % OH, r // OW // OH
    a = tl.zeros((BM, BN), tl.float32)
    for s in range(T * tl.cdiv(C, BK)):
        t = s // tl.cdiv(C, BK)
        j = s % tl.cdiv(C, BK) * BK + tl.arange(0, BK)
        h = down * STRIDE + t // SIDE - PAD
        w = across * STRIDE + t % SIDE - PAD
        inside = (r < M) & (h >= 0) & (h < H) & (w >= 0) & (w < W) & (j[None, :] < C)
        left = tl.load(x + ((b * C + j[None, :]) * H + h) * W + w, mask=inside, other=0.0)
        right = tl.load(y + (t * N + c) * C + j[:, None], mask=(c < N) & (j[:, None] < C), other=0.0)
        a = tl.dot(left, right, a, input_precision=FORM)
    tl.store(o + ((b * N + c) * OH + down) * OW + across, a, mask=(r < M) & (c < N))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with open(out / "rates.jsonl", "w", encoding="utf-8") as file:
        for shape, library, jobs, expected, size in itertools.chain(products(), convolutions()):
            base = milliseconds(library)
            print(f"{shape}: library {base:.3f} ms, error {error(library(), expected, size):.1e}")
            found = []
            for tile, run in jobs:
                result = run()
                row = {"shape": shape, **tile, "error": error(result, expected, size), "ms": milliseconds(run)}
                found.append(row | {"times": base / row["ms"]})
                file.write(json.dumps(found[-1]) + "\n")
            for form in FORMS:
                best = min((row for row in found if row["form"] == form), key=lambda row: row["ms"])
                print("   ", " ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in best.items()))


Job = tuple[dict[str, Any], Callable[[], Tensor]]
Case = tuple[str, Callable[[], Tensor], Iterator[Job], Tensor, Tensor]


def tiles() -> Iterator[dict[str, Any]]:
    for form, (rows, columns), warps in itertools.product(FORMS, TILES, (4, 8)):
        yield {"form": form, "rows": rows, "columns": columns, "warps": warps}


def products() -> Iterator[Case]:
    """With the right factor along the columns, and along the inner dimension, as a linear layer has it."""
    for (rows, inner, columns), turned in itertools.product(PRODUCTS, (False, True)):
        x = torch.randn(rows, inner, device="cuda")
        y = torch.randn(*((columns, inner) if turned else (inner, columns)), device="cuda")
        seen = y.T if turned else y

        def jobs(x: Tensor = x, seen: Tensor = seen) -> Iterator[Job]:
            (m, k), n = x.shape, seen.shape[1]
            for tile in tiles():

                def run(tile: dict[str, Any] = tile) -> Tensor:
                    o = x.new_empty(m, n)
                    grid = (triton.cdiv(m, tile["rows"]), triton.cdiv(n, tile["columns"]))
                    product[grid](
                        x, seen, o, m, n, k, *seen.stride(), tile["rows"], tile["columns"], 32, tile["form"],
                        num_warps=tile["warps"],
                    )  # fmt: skip
                    return o

                yield tile, run

        name = f"{rows} x {inner} x {columns}" + " turned" * turned
        expected, size = x.double() @ seen.double(), x.abs().double() @ seen.abs().double()
        yield name, functools.partial(torch.matmul, x, seen), jobs(), expected, size


def convolutions() -> Iterator[Case]:
    for batch, channels, side, columns, window, stride, pad in CONVOLUTIONS:
        x = torch.randn(batch, channels, side, side, device="cuda")
        y = torch.randn(columns, channels, window, window, device="cuda")

        def apply(x: Tensor = x, y: Tensor = y, stride: int = stride, pad: int = pad) -> Tensor:
            return functional.conv2d(x, y, stride=stride, padding=pad)

        expected, size = apply(x.double(), y.double()), apply(x.abs().double(), y.abs().double())

        def jobs(
            x: Tensor = x, y: Tensor = y, made: torch.Size = expected.shape, stride: int = stride, pad: int = pad
        ) -> Iterator[Job]:
            n, c, window, _ = y.shape
            m = made.numel() // n
            for tile in tiles():

                def run(tile: dict[str, Any] = tile) -> Tensor:
                    o, places = x.new_empty(made), y.flatten(2).permute(2, 0, 1).contiguous()
                    grid = (triton.cdiv(m, tile["rows"]), triton.cdiv(n, tile["columns"]))
                    convolution[grid](
                        x, places, o, m, n, c, window**2, *x.shape[2:], *made[2:], pad, stride, window, tile["rows"],
                        tile["columns"], 32, tile["form"], num_warps=tile["warps"],
                    )  # fmt: skip
                    return o

                yield tile, run

        name = f"{batch} x {channels} x {side}^2 to {columns}, window {window}, stride {stride}, padding {pad}"
        yield name, apply, jobs(), expected, size


def milliseconds(run: Callable[[], Tensor]) -> float:
    """Of one call: the median of five, after one that compiles."""
    run()
    found = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end))
    return statistics.median(found)


def error(result: Tensor, expected: Tensor, size: Tensor) -> float:
    return float(((result.double() - expected).abs() / size).max())


if __name__ == "__main__":
    main()
