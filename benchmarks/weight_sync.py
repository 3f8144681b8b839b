"""Seconds that a weight sync takes: ours, in buckets, against one tensor at a time.

    python benchmarks/weight_sync.py OUT --shape 0.6b                                       one GPU
    torchrun --nproc-per-node 2 benchmarks/weight_sync.py OUT --shape 1.7b                  FSDP2 over two

float32 master weights in the shapes of Qwen3 (random), sharded as in training; a bfloat16 vLLM engine in the same
process. `ours` is engine.sync: cast, gather in buckets, one load_weights, prefix cache reset. `one at a time` is
full_tensor() -> cast -> load_weights per weight, as TRL does it. Both leave the same bits in the engine, which is
checked, and so is that the engine then agrees with the trainer. Median and range of ten, after two warm-ups, order
alternated. How far may they be apart? Trainer and engine both compute in bfloat16; each one's distance from the same
weights in float32 bounds theirs from each other from below. OUT/weight_sync_<shape>_<ranks>.json and .md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import torch
from shapes import SHAPES, config_of
from torch.distributed.tensor import DTensor

from drkernel.policy import check_agreement
from drkernel.policy.engines.vllm_engine import VllmEngine
from drkernel.policy.model import Policy
from drkernel.policy.transfer import sampled
from drkernel.training.loading import random_policy
from drkernel.training.ranks import Ranks, init_distributed

WARM_UPS, TIMED = 2, 10
PROMPT = list(range(2, 202))
PROMPTS = 8
"""Whose completions, 128 tokens each, log-probabilities are compared on."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", default="0.6b", choices=SHAPES)
    parser.add_argument("--bound", type=float, default=0.1, help="largest mean difference of log-probabilities")
    options = parser.parse_args()
    ranks = init_distributed()
    policy = random_policy(config_of(options.shape), ranks)
    with closing(VllmEngine(policy, set(), slots=16, context=1024, kv_cache_gib=1.0, eager=True)) as engine:
        result = measure(engine, policy, ranks)
        check_agreement(engine, policy, PROMPT, options.bound)
        exact = random_policy(config_of(options.shape), ranks, dtype=torch.float32)
        result |= {"distances": distances(engine, policy, exact)}
    result |= {"shape": options.shape, "ranks": ranks.size, "parameters": sum(p.numel() for p in policy.parameters())}
    result |= {"machine": machine(ranks.device), "command": sys.argv}
    if ranks.is_main:
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / f"weight_sync_{options.shape}_{ranks.size}"
        path.with_name(path.name + ".json").write_text(json.dumps(result, indent=1) + "\n")
        path.with_name(path.name + ".md").write_text(markdown(result))
        print(markdown(result))
    ranks.close()


def measure(engine: VllmEngine, policy: Policy, ranks: Ranks) -> dict:
    ways = {"ours": lambda: engine.sync(policy), "one at a time": lambda: one_at_a_time(engine, policy)}
    digests = {}
    for name, way in ways.items():
        engine._engine.apply_model(scramble)
        way()
        digests[name] = engine._engine.apply_model(digest)[0]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(WARM_UPS + TIMED):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            seconds[name].append(timed(ways[name], ranks))
    rows = {name: values[WARM_UPS:] for name, values in seconds.items()}
    return {"seconds": rows, "same_bits": len(set(digests.values())) == 1}


def distances(engine: VllmEngine, policy: Policy, exact: Policy) -> dict[str, float]:
    """Mean |difference| of log-probabilities, in nats per token that the engine samples."""
    found: dict[str, list[torch.Tensor]] = {}
    for shift in range(PROMPTS):
        batch, theirs = sampled(engine, [token + shift for token in PROMPT], policy.device)
        ours, right = (each.logprobs(batch).logprobs[batch.loss_mask] for each in (policy, exact))
        pairs = {"engine and trainer": (theirs, ours), "trainer and float32": (ours, right)}
        for name, (one, other) in (pairs | {"engine and float32": (theirs, right)}).items():
            found.setdefault(name, []).append((one - other).abs())
    return {name: torch.cat(parts).mean().item() for name, parts in found.items()}


def timed(way: Callable[[], None], ranks: Ranks) -> float:
    """Of the slowest rank."""
    synchronize(ranks.device)
    ranks.barrier()
    started = time.perf_counter()
    way()
    synchronize(ranks.device)
    return max(ranks.all_gather_list([time.perf_counter() - started]))


def one_at_a_time(engine: VllmEngine, policy: Policy) -> None:
    @torch.no_grad()
    def load(model) -> None:
        for name, tensor in policy.model.named_parameters():
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.data
            model.load_weights([(name, whole.to(engine.dtype))])

    if policy.device.type == "cuda":
        engine._engine.apply_model(load)
        engine._engine.reset_prefix_cache()
    else:  # vLLM's CPU backend takes no single weights; this is only for trying the script out
        engine.sync(policy)


def scramble(model) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(2)


def digest(model) -> str:
    """Of all bits: sums of the weights as integers."""
    views = (p.data.view(torch.int16 if p.element_size() == 2 else torch.int32) for p in model.parameters())
    return " ".join(str(int(view.long().sum())) for view in views)


def markdown(result: dict) -> str:
    lines = [
        f"Qwen3-{result['shape']} shape ({result['parameters'] / 1e9:.2f}e9 parameters), {result['ranks']} rank(s); "
        f"{result['machine']}; the same bits both ways: {result['same_bits']}",
        "",
        f"| way | median ms of {TIMED} | range ms |",
        "|---|---|---|",
    ]
    for name, values in result["seconds"].items():
        ms = [1e3 * value for value in values]
        lines.append(f"| {name} | {statistics.median(ms):.1f} | {min(ms):.1f} to {max(ms):.1f} |")
    lines += ["", "| log-probabilities of | mean difference, nats per token |", "|---|---|"]
    lines += [f"| {name} | {value:.6f} |" for name, value in result["distances"].items()]
    return "\n".join(lines) + "\n"


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine(device: torch.device) -> str:
    import vllm

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"{name}, torch {torch.__version__}, vLLM {vllm.__version__}"


if __name__ == "__main__":
    main()
