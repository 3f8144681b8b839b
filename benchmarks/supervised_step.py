"""Seconds of a supervised step on short rows: sharded or whole, by optimizer, micro-batch and head, compiled or not.

    python benchmarks/supervised_step.py OUT [--hidden 640 --layers 12 --kv-heads 5] [--tokens 65536] [--compiled]

    torchrun --nproc-per-node=4 benchmarks/supervised_step.py OUT ...         the same step divided over four GPUs

A policy of random weights and a vocabulary of 2,048 trains on rows of log-normal length (median 600), new ones in every
step. OUT/supervised_step.md has the median after three steps of warm-up. On GPUs as `stage=sft` has it: FSDP2, or the
whole policy on each under autocast. "muon, one by one" is torch.optim.Muon, "muon" the same on stacks of matrices.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path
from unittest.mock import patch

import numpy
import torch

from drkernel.policy import new_policy
from drkernel.training import optimizers, supervised
from drkernel.training.ranks import Ranks, init_distributed
from drkernel.training.sharding import prepare_blocks, shard
from drkernel.training.supervised import Row

VOCABULARY, WARM_UP = 2048, 3
COMPILED = {"fullgraph": True, "dynamic": True}
VARIANTS = (
    # sharded, optimizer, parts of a step, tokens whose logits exist together, compiled
    (True, "adamw", 2, 4096, False),
    (False, "adamw", 2, 4096, False),
    (False, "adamw", 1, 65_536, False),
    (False, "muon, one by one", 1, 65_536, False),
    (False, "muon", 1, 65_536, False),
    (True, "muon", 1, 65_536, True),
    (False, "muon, one by one", 1, 65_536, True),
    (False, "muon", 1, 65_536, True),
)


def rows_of(tokens: int, seed: int) -> list[Row]:
    """Rows of 150 to 4,000 tokens, about `tokens` together, seven in ten of which train."""
    lengths, numbers, left = random.Random(seed), numpy.random.default_rng(seed), tokens
    rows: list[Row] = []
    while left > 0:
        length = int(min(4000, max(150, lengths.lognormvariate(6.4, 0.6))))
        left -= length
        trains = numbers.random(length) < 0.7
        trains[0] = False
        rows.append(Row(numbers.integers(0, VOCABULARY, length).astype(numpy.int32), trains))
    return rows


def seconds(ranks: Ranks, given: argparse.Namespace, variant: tuple[bool, str, int, int, bool]) -> list[float]:
    """Of each step after the warm-up."""
    sharded, name, parts, chunk, compiled = variant
    compile_options = COMPILED if compiled and ranks.device.type == "cuda" else None
    policy = new_policy(VOCABULARY, given.hidden, given.layers, kv_heads=given.kv_heads)
    policy.chunk = chunk
    if sharded:
        shard(policy, ranks, compile=compile_options)
    else:
        policy.to(ranks.device)
        prepare_blocks(policy, compile=compile_options)
    with patch.object(optimizers, "StackedMuon", torch.optim.Muon if "one by one" in name else optimizers.StackedMuon):
        optimizer = optimizers.OPTIMIZERS[name.split(",")[0]](policy, 1e-3, 0.1)
    taken, limit = [], given.tokens // parts // ranks.size + 4000
    for number in range(given.steps):
        rows, begun = rows_of(given.tokens, number), time.perf_counter()
        # waits for the device
        supervised.step(policy, optimizer, rows, 1e-3, max_tokens=limit, max_grad_norm=1.0, ranks=ranks)
        taken.append(time.perf_counter() - begun)
    return taken[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    for option, default in (("hidden", 640), ("layers", 12), ("kv-heads", 5), ("tokens", 65_536), ("steps", 10)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--compiled", action="store_true", help="only the compiled variants")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    ranks = init_distributed()
    name = torch.cuda.get_device_name() if ranks.device.type == "cuda" else "CPU"
    lines = [
        f"{given.tokens} tokens a step, width {given.hidden}, {given.layers} blocks; {ranks.size} x {name}, "
        f"torch {torch.__version__}"
    ]
    lines += ["", "| policy | optimizer | passes | logits of | compiled | s (range) |", "|---|---|---:|---:|---|---|"]
    for variant in (each for each in VARIANTS if each[4] or not given.compiled):
        sharded, optimizer, parts, chunk, compiled = variant
        found, kind = seconds(ranks, given, variant), "sharded" if sharded else "whole"
        lines.append(
            f"| {kind} | {optimizer} | {parts} | {chunk} | {'yes' if compiled else 'no'} | "
            f"{statistics.median(found):.3f} ({min(found):.3f} to {max(found):.3f}) |"
        )
        if ranks.is_main:
            print(lines[-1], flush=True)
            (given.out / "supervised_step.md").write_text("\n".join(lines) + "\n")
    ranks.close()


if __name__ == "__main__":
    main()
