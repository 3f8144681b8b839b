"""The part `small` of generation.py: tokens per second of the engines with policies of 3 to 120 million parameters.

Per engine, size and number of slots: four requests per slot with random prompts and log-normal completions of
prescribed length (nothing stops them), all added at once, as `tokens/s`; and one request per slot with a prompt of 16
tokens and 256 tokens to generate, as `decoding`, which is the decode step alone. A warm-up, then three timed runs each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import closing

import torch

from drkernel.policy import Engine, Policy, Request, load_engine, new_policy
from drkernel.types import DrKernelError

SIZES = {"3m": (1024, 192, 6), "8m": (2048, 256, 8), "60m": (8192, 640, 12), "120m": (8192, 896, 12)}
"""Vocabulary, width and layers."""
RUNS = 3
Draw = Callable[[int, int], list[Request]]
"""Run number, vocabulary -> requests."""


def arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("part small")
    group.add_argument("--engines", nargs="+", default=["graphs"])
    group.add_argument("--sizes", nargs="*", default=["3m", "8m", "60m"], choices=SIZES)
    group.add_argument("--slot-counts", nargs="+", type=int, default=[64, 128, 256, 512])
    group.add_argument("--own", nargs=3, type=int, metavar=("VOCABULARY", "HIDDEN", "LAYERS"), help="another size")


def measure(options: argparse.Namespace, completions: Callable[[int, int, int], list[Request]], context: int) -> None:
    """completions(run, requests, vocabulary) -> the requests of one run. Writes OUT/generation_small.json and .md."""
    sizes = {name: SIZES[name] for name in options.sizes} | ({"own": tuple(options.own)} if options.own else {})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    result: dict = {"machine": f"{name}, torch {torch.__version__}", "prompt": options.prompt, "rows": []}
    for size, (vocabulary, hidden, layers) in sizes.items():
        policy = new_policy(vocabulary, hidden, layers).to(device)
        for engine in options.engines:
            for slots in options.slot_counts:
                draw: Draw = lambda turn, tokens, slots=slots: completions(turn, 4 * slots, tokens)  # type: ignore[misc]
                row = measured(engine, policy, slots, context, draw, options)
                row = {"size": size, "parameters": sum(p.numel() for p in policy.parameters())} | row
                result["rows"].append(row)
                print(row, flush=True)
                (options.out / "generation_small.json").write_text(json.dumps(result, indent=1) + "\n")
                (options.out / "generation_small.md").write_text(markdown(result))
    print(markdown(result))


def measured(
    name: str, policy: Policy, slots: int, context: int, draw: Draw, options: argparse.Namespace
) -> dict[str, float | str | list[float]]:
    started = time.perf_counter()
    try:
        engine = load_engine(name, policy, set(), slots, context, options.kv)
    except (DrKernelError, torch.OutOfMemoryError) as error:
        return {"engine": name, "slots": slots, "error": str(error).splitlines()[0]}
    with closing(engine):
        start_s = time.perf_counter() - started
        vocabulary = policy.model.config.vocab_size
        whole = [speed(engine, draw(turn, vocabulary)) for turn in range(RUNS + 1)][1:]
        same_length = [Request(f"s{i}", [i % vocabulary] * 16, 256, seed=i) for i in range(slots)]
        alone = [speed(engine, same_length) for _ in range(RUNS + 1)][1:]
    return {"engine": name, "slots": slots, "start_s": start_s, "tokens/s": whole, "decoding": alone}


def speed(engine: Engine, requests: list[Request]) -> float:
    """Tokens per second."""
    started = time.perf_counter()
    for request in requests:
        engine.add(request)
    tokens = 0
    while engine.busy:
        for completion in engine.step():
            tokens += len(completion.token_ids)
            engine.release(completion.id)
    return tokens / (time.perf_counter() - started)


def markdown(result: dict) -> str:
    lines = [f"Qwen3 shapes, random weights, prompts of {result['prompt']} tokens; {result['machine']}", ""]
    lines += ["| parameters | engine | slots | tokens/s (range) | decoding, tokens/s | ms per decode step | start, s |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for row in result["rows"]:
        begin = f"| {row['parameters'] / 1e6:.1f}M | {row['engine']} | {row['slots']} |"
        if "error" in row:
            lines.append(f"{begin} {row['error']} | | | |")
            continue
        whole, alone = row["tokens/s"], statistics.median(row["decoding"])
        spread = f"{statistics.median(whole):,.0f} ({min(whole):,.0f} to {max(whole):,.0f})"
        lines.append(f"{begin} {spread} | {alone:,.0f} | {1000 * row['slots'] / alone:.2f} | {row['start_s']:.1f} |")
    return "\n".join(lines) + "\n"
