"""Packed attention alone: FlashAttention 4 beside 2, and both beside float32 attention of each row.

    python benchmarks/attention.py OUT

Qwen3's heads (16 of queries, 8 of keys, 128 wide); of the rows of benchmarks/update_step.py as many as 32,768 tokens
hold. Median of 20 after 3 warm-ups; TFLOP/s count the pairs that see each other. OUT/attention.md.
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
from torch import Tensor

from drkernel.policy.attention import causal
from drkernel.policy.varlen import flash4_works, varlen

TOKENS, SCALE = 32_768, 128**-0.5
WARM_UPS, TIMED = 3, 20


def main(out: Path) -> None:
    bounds = rows()
    draw = torch.Generator("cuda").manual_seed(0)
    *inputs, weight = (torch.randn((bounds[-1], heads, 128), device="cuda", generator=draw) for heads in (16, 8, 8, 16))
    reference = gradients(lambda *qkv: by_rows(bounds, *qkv), inputs, weight)
    inputs, weight = [x.bfloat16() for x in inputs], weight.bfloat16()
    flops = 4 * 128 * 16 * sum((end - start) ** 2 / 2 for start, end in pairwise(bounds))
    lines = [f"{bounds[-1]:,} tokens in {len(bounds) - 1} rows; {bench.machine(torch.device('cuda'))}", ""]
    lines += ["| | forward ms | TFLOP/s | backward ms | TFLOP/s | cosine to float32 (out, dq, dk, dv) |"]
    lines += ["|---|---:|---:|---:|---:|---|"]
    for name, flash4 in (("FlashAttention 2", False), ("FlashAttention 4", True)):
        if flash4 and not flash4_works(torch.device("cuda")):
            continue
        attend = attention(bounds, flash4)
        found = gradients(attend, inputs, weight)
        cosines = " ".join(f"{bench.cosine({'': a}, {'': b}):.6f}" for a, b in zip(found, reference, strict=True))
        with torch.no_grad():
            forward = timed(lambda: attend(*inputs))  # noqa: B023
        backward = timed(lambda: gradients(attend, inputs, weight)) - forward  # noqa: B023
        rates = flops / forward / 1e9, 2.5 * flops / backward / 1e9
        lines.append(f"| {name} | {forward:.2f} | {rates[0]:.0f} | {backward:.2f} | {rates[1]:.0f} | {cosines} |")
    out.mkdir(parents=True, exist_ok=True)
    (out / "attention.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def rows() -> list[int]:
    bounds = bench.batch_of("0.6b").cu_seqlens.tolist()
    return [bound for bound in bounds if bound <= TOKENS]


def attention(bounds: list[int], flash4: bool) -> Callable[..., Tensor]:
    cu_seqlens = torch.tensor(bounds, dtype=torch.int32, device="cuda")
    longest = max(end - start for start, end in pairwise(bounds))
    return lambda *qkv: varlen(*qkv, cu_seqlens, longest, SCALE, flash4)


def by_rows(bounds: list[int], *qkv: Tensor) -> Tensor:
    return torch.cat([causal(*(x[start:end] for x in qkv), SCALE) for start, end in pairwise(bounds)])


def gradients(attend: Callable[..., Tensor], inputs: list[Tensor], weight: Tensor) -> list[Tensor]:
    """Output and gradients."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    output = attend(*inputs)
    return [output.detach(), *torch.autograd.grad(output, inputs, weight)]


def timed(call: Callable[[], object]) -> float:
    """Milliseconds."""
    found = []
    for _ in range(WARM_UPS + TIMED):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found[WARM_UPS:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    main(parser.parse_args().out)
