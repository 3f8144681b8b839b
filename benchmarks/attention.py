"""Packed attention alone: FlashAttention 4 beside 2, and both beside float32 attention of each row.

    python benchmarks/attention.py OUT

Qwen3's heads (16 of queries, 8 of keys, 128 wide); of the rows of benchmarks/update_step.py as many as --tokens hold.
Median of 20 after 3 warm-ups; TFLOP/s count the pairs that see each other. OUT/attention.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
import update_step as bench
from shapes import SHAPES
from torch import Tensor

from drkernel.policy.attention import Packed
from drkernel.training.ranks import init_distributed

SCALE = 128**-0.5
WARM_UPS, TIMED = 3, 20


def main(options: argparse.Namespace) -> None:
    device = init_distributed().device
    bounds = [bound for bound in bench.batch_of(options.shape).cu_seqlens.tolist() if bound <= options.tokens]
    layout = Packed(torch.tensor(bounds, dtype=torch.int32), device)
    draw = torch.Generator(device).manual_seed(0)
    *exact, weight = (torch.randn((bounds[-1], n, 128), device=device, generator=draw) for n in (16, 8, 8, 16))
    inputs = query, key, value = [x.bfloat16() for x in exact]
    flops = 4 * 128 * 16 * sum((end - start) ** 2 / 2 for start, end in pairwise(bounds))
    reference = gradients(layout, exact, weight)
    lines = [f"{bounds[-1]:,} tokens in {len(bounds) - 1} rows; {bench.machine(device)}", ""]
    lines += ["| | forward ms | TFLOP/s | backward ms | TFLOP/s | cosine to float32 (out, dq, dk, dv) |"]
    lines += ["|---|---:|---:|---:|---:|---|"]
    for version in (2, 4) if layout.flash4 else (2,):
        layout.flash4 = version == 4
        found = gradients(layout, inputs, weight.bfloat16())
        cosines = " ".join(f"{bench.cosine({'': a}, {'': b}):.6f}" for a, b in zip(found, reference, strict=True))
        with torch.no_grad():
            forward = timed(lambda: layout.attend(None, query, key, value, SCALE), device)
        backward = timed(lambda: gradients(layout, inputs, weight.bfloat16()), device) - forward
        rates = flops / forward / 1e9, 2.5 * flops / backward / 1e9
        cells = f"{forward:.2f} | {rates[0]:.0f} | {backward:.2f} | {rates[1]:.0f} | {cosines}"
        lines.append(f"| FlashAttention {version} | {cells} |")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "attention.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def gradients(layout: Packed, inputs: list[Tensor], weight: Tensor) -> list[Tensor]:
    """Output and gradients."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    query, key, value = inputs
    output = layout.attend(None, query, key, value, SCALE)
    return [output.detach(), *torch.autograd.grad(output, inputs, weight)]


def timed(call: Callable[[], object], device: torch.device) -> float:
    """Milliseconds."""
    found = []
    for _ in range(WARM_UPS + TIMED):
        bench.synchronize(device)
        start = time.perf_counter()
        call()
        bench.synchronize(device)
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found[WARM_UPS:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--shape", default="0.6b", choices=SHAPES, help="tiny has rows a hundredth as long")
    main(parser.parse_args())
