"""The update step with LoRA on one GPU: tokens/s, utilisation, peak memory beside the plan's, seconds of the merge.

    python benchmarks/update_step_lora.py OUT [--shape 8b] [--rank 32] [--rows 4] [--row-tokens 32768] [--recompute 1]

Random weights in the shape of a Qwen3: a bfloat16 base that stays as it is, float32 adapters on all linear layers of
the blocks, B drawn from N(0, 1e-3) so that they act. Each of --rows rows has a quarter of random prompt tokens and
three quarters of sampled ones, one row per micro-batch, as train.py has them for `policy=qwen3_8b_lora`. Timed is
`update.step` with its optimizer step: --warm-ups first, then --steps; median and range. FLOPs are those that the
mathematics needs (training/flops.py: no gradients of frozen weights, nothing twice). `merge` is what a weight sync does
before the engine takes the weights: W + scale B A of all layers in bfloat16. Neither engine nor judge is there, so the
peak is compared with the plan's state and activations. OUT/update_lora_<shape>.json and .md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, cast

import torch
import update_step as bench
from expectations import planned_gib, relative_error, shown, utilisation
from shapes import SHAPES, config_of

from drkernel.config import LoraConfig
from drkernel.policy.lora import adapted, draw_adapters
from drkernel.policy.model import Policy
from drkernel.policy.transfer import weights
from drkernel.training import update
from drkernel.training.flops import update_flops
from drkernel.training.loading import random_policy
from drkernel.training.packing import pack
from drkernel.training.ranks import Ranks, init_distributed
from drkernel.types import Batch, Trajectory, Turn

MERGES = 3


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    ranks = init_distributed()
    lora = LoraConfig(rank=options.rank)
    policy = make_policy(options, lora, ranks)
    result: dict[str, Any] = {"command": sys.argv, "machine": bench.machine(ranks.device), "shape": options.shape}
    result |= measure(policy, batch_of(options), options, ranks.device)
    result |= {"merge_seconds": merge_seconds(policy, ranks.device)}
    settings = {"recompute": options.recompute, "lora": lora}
    result["planned_gib"] = planned_gib(config_of(options.shape), options.row_tokens, **settings)
    path = options.out / f"update_lora_{options.shape}"
    path.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    path.with_suffix(".md").write_text(markdown(result))
    print(markdown(result))
    ranks.close()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", default="8b", choices=SHAPES)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--row-tokens", type=int, default=32_768)
    parser.add_argument("--recompute", type=float, default=1.0)
    parser.add_argument("--no-compile", action="store_true", help="blocks as they are, which starts sooner")
    parser.add_argument("--warm-ups", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def make_policy(options: argparse.Namespace, lora: LoraConfig, ranks: Ranks) -> Policy:
    """As training/build.py makes it, of random weights."""
    compiled = ranks.device.type == "cuda" and not options.no_compile
    policy = random_policy(
        config_of(options.shape),
        ranks,
        lora=lora,
        activation_checkpointing=options.recompute,
        compile={"fullgraph": True, "dynamic": True} if compiled else None,
    )
    draw_adapters(policy, seed=0)
    torch.manual_seed(0)
    for _, layer in adapted(policy.model):
        torch.nn.init.normal_(cast(Any, layer.lora_B.weight).to_local(), 0.0, 1e-3)
    return policy


def batch_of(options: argparse.Namespace) -> Batch:
    draw, prompt = torch.Generator().manual_seed(0), options.row_tokens // 4
    take = lambda n: torch.randint(0, SHAPES[options.shape]["vocab_size"], (n,), generator=draw).tolist()
    rows = [(take(prompt), take(options.row_tokens - prompt)) for _ in range(options.rows)]
    batch = pack([Trajectory("t", i, 0, [Turn(p, a, [0.0] * len(a))]) for i, (p, a) in enumerate(rows)])
    batch.advantages = torch.randn(options.rows, generator=draw)[batch.trajectory_ids] * batch.loss_mask
    return batch


def measure(policy: Policy, batch: Batch, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Seconds per step, and what follows from them."""
    optimizer = update.make_optimizer(policy, lr=1e-5, weight_decay=0.01)
    loss = bench.objective(batch, device)
    bench.reset_peak(device)
    seconds = []
    for _ in range(options.warm_ups + options.steps):
        seconds.append(-time.perf_counter())
        metrics = update.step(policy, optimizer, batch, loss, max_tokens=options.row_tokens, max_grad_norm=1.0)
        bench.synchronize(device)
        seconds[-1] += time.perf_counter()
    kept, tokens = sorted(seconds[options.warm_ups :]), len(batch.tokens)
    adapters = sum(parameter.numel() for parameter in update.trained(policy))
    lengths, sampled = batch.cu_seqlens.diff().tolist(), int(batch.loss_mask.sum())
    flops = update_flops(config_of(options.shape), lengths, sampled, adapters)
    return {
        "tokens_per_step": tokens,
        "adapters": adapters,
        "seconds": seconds,
        "tokens_per_second": tokens / statistics.median(kept),
        "range": [tokens / kept[-1], tokens / kept[0]],
        "mfu": utilisation(flops / statistics.median(kept), device),
        "peak_gib": bench.peak_gib(device),
        "last_step": metrics,
    }


def merge_seconds(policy: Policy, device: torch.device) -> list[float]:
    """Of each time that all weights are merged; the tensors are dropped as they come."""
    found = []
    for _ in range(MERGES):
        started = time.perf_counter()
        for _, _tensor in weights(policy, torch.bfloat16):
            pass
        bench.synchronize(device)
        found.append(time.perf_counter() - started)
    return found


def markdown(result: dict[str, Any]) -> str:
    low, high = result["range"]
    peak, planned = result["peak_gib"], result["planned_gib"]
    return "\n".join(
        [
            f"`{' '.join(result['command'])}` on {result['machine']}",
            "",
            "| shape | adapters | tokens/step | s/step | tokens/s (range) | MFU | peak GiB | planned GiB | error "
            "| merge s |",
            "| --- |" + " ---: |" * 9,
            f"| {result['shape']} | {result['adapters'] / 1e6:.1f}M | {result['tokens_per_step']:,} "
            f"| {result['tokens_per_step'] / result['tokens_per_second']:.2f} "
            f"| {result['tokens_per_second']:,.0f} ({low:,.0f} to {high:,.0f}) | {shown(result['mfu'], '.1%')} "
            f"| {shown(peak, '.1f')} | {shown(planned, '.1f')} | {shown(relative_error(planned, peak), '+.1%')} "
            f"| {statistics.median(result['merge_seconds']):.3f} |",
            "",
        ]
    )


if __name__ == "__main__":
    main()
