"""The update step on several GPUs at fixed work per GPU: tokens/s and efficiency against one.

    for n in 1 2 4; do torchrun --nproc-per-node $n benchmarks/update_ranks.py OUT [--shape 1.7b] [--tokens 32768]; done

Every rank brings the 64 rows of benchmarks/update_step.py; all rows form one batch, which is shared out among the ranks
again. Random weights, FSDP2, blocks compiled. OUT/ranks.json collects the runs, OUT/ranks.md shows them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

import torch
import update_step as bench
from shapes import SHAPES, config_of

from drkernel.training import update
from drkernel.training.loading import random_policy
from drkernel.training.packing import pack
from drkernel.training.ranks import Ranks, init_distributed
from drkernel.types import Batch, Trajectory, Turn

WARM_UPS, TIMED = 2, 5


def main(options: argparse.Namespace) -> None:
    ranks = init_distributed()
    gpu = ranks.device.type == "cuda"
    compiled = {"fullgraph": True, "dynamic": True} if gpu else None
    policy = random_policy(config_of(options.shape), ranks, compile=compiled)
    optimizer = update.make_optimizer(policy, lr=1e-6, weight_decay=0.0)
    batch = copies(bench.batch_of(options.shape), ranks.size)
    loss = bench.objective(batch, ranks.device)
    seconds = []
    for _ in range(WARM_UPS + TIMED):
        ranks.barrier()
        bench.synchronize(ranks.device)
        start = time.perf_counter()
        update.step(policy, optimizer, batch, loss, max_tokens=options.tokens, max_grad_norm=1.0, ranks=ranks)
        bench.synchronize(ranks.device)
        seconds.append(time.perf_counter() - start)
    if ranks.is_main:
        write(options, ranks, len(batch.tokens), sorted(seconds[WARM_UPS:]))
    ranks.close()


def copies(batch: Batch, number: int) -> Batch:
    """The batch so many times over, as one."""
    bounds = batch.cu_seqlens.tolist()
    rows = [
        (batch.tokens[start:end].tolist(), int((~batch.loss_mask[start:end]).sum()), float(batch.advantages[end - 1]))
        for start, end in pairwise(bounds)
    ] * number
    turns = [Turn(tokens[:prompt], tokens[prompt:], [0.0] * (len(tokens) - prompt)) for tokens, prompt, _ in rows]
    whole = pack([Trajectory("t", i, 0, [turn]) for i, turn in enumerate(turns)])
    whole.advantages = torch.tensor([advantage for *_, advantage in rows])[whole.trajectory_ids] * whole.loss_mask
    return whole


def write(options: argparse.Namespace, ranks: Ranks, tokens: int, seconds: list[float]) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "ranks.json"
    runs = json.loads(path.read_text()) if path.exists() else []
    rate = tokens / statistics.median(seconds)
    run = {"shape": options.shape, "ranks": ranks.size, "tokens_per_second": rate, "seconds": seconds}
    runs = [r for r in runs if (r["shape"], r["ranks"]) != (options.shape, ranks.size)] + [run]
    path.write_text(json.dumps(runs, indent=1) + "\n")
    lines = [f"`{' '.join(sys.argv)}` on {bench.machine(ranks.device)}", ""]
    lines += ["| shape | GPUs | tokens/s | per GPU | efficiency |", "|---|---:|---:|---:|---:|"]
    for r in sorted(runs, key=lambda r: (r["shape"], r["ranks"])):
        single = next((o["tokens_per_second"] for o in runs if (o["shape"], o["ranks"]) == (r["shape"], 1)), None)
        each = r["tokens_per_second"] / r["ranks"]
        efficiency = f"{each / single:.1%}" if single else ""
        lines.append(f"| {r['shape']} | {r['ranks']} | {r['tokens_per_second']:,.0f} | {each:,.0f} | {efficiency} |")
    (options.out / "ranks.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", default="1.7b", choices=SHAPES)
    parser.add_argument("--tokens", type=int, default=32768)
    main(parser.parse_args())
