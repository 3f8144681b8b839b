"""How much of what adapters change reaches an engine in bfloat16: rounded to the nearest, and dithered as in training.

    python benchmarks/lora_rounding.py [--lr 1e-5] [--steps 64]           a minute on two CPU cores

The shipped policy in bfloat16 values gets adapters of rank 32, which learn eight prompts (AdamW, one step over all). On
four other prompts the change of each token's log-probability since the start is compared between the trainer (adapters
beside the base) and the merged weights: `reaches` is the slope of the engine's change over the trainer's, 1 where all
of it arrives; `apart` the mean difference in nats. All arithmetic is float32, so that rounding of weights is all there
is. Prints a table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor

from drkernel.config import REPOSITORY, LoraConfig
from drkernel.policy.lora import adapted, add_adapters, dithered, draw_adapters
from drkernel.policy.model import Policy, load_tokenizer
from drkernel.policy.prompts import load_prompts
from drkernel.tasks import load_tasks
from drkernel.training import update
from drkernel.types import Batch

SOURCE = REPOSITORY / "assets/seed"
LEARNT, HELD_OUT, TOKENS = 8, 4, 300
ROUNDINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "nearest": lambda rows: rows.bfloat16(),
    "dithered": lambda rows: dithered(rows, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--steps", type=int, default=64)
    options = parser.parse_args()
    rows = prompt_rows()
    policy = add_adapters(base(), LoraConfig(rank=32))
    draw_adapters(policy, seed=0)
    optimizer = update.make_optimizer(policy, options.lr, weight_decay=0.0)
    start = scores(policy, rows[LEARNT:])
    print("| step | change, nats | " + " | ".join(f"{name}: reaches | apart" for name in ROUNDINGS) + " |")
    print("| ---: " * (2 + 2 * len(ROUNDINGS)) + "|")
    shown = {2**power for power in range(options.steps.bit_length())}
    for step in range(1, options.steps + 1):
        optimizer.zero_grad()
        for batch in rows[:LEARNT]:
            policy.backward(batch, lambda logprobs, _: -logprobs.sum() / (LEARNT * TOKENS))
        optimizer.step()
        if step in shown:
            ours = scores(policy, rows[LEARNT:]) - start
            theirs = [scores(engine(policy, rounding), rows[LEARNT:]) - start for rounding in ROUNDINGS.values()]
            cells = [f"{(t @ ours / (ours @ ours)).item():.3f} | {(t - ours).abs().mean().item():.1e}" for t in theirs]
            print(f"| {step} | {ours.abs().mean().item():.1e} | {' | '.join(cells)} |", flush=True)


def base() -> Policy:
    policy = Policy.load(SOURCE)
    for weight in policy.parameters():
        weight.data = weight.data.bfloat16().float()
    return policy


def prompt_rows() -> list[Batch]:
    """One prompt per batch; scored are all of its tokens but the first twenty."""
    prompts = load_prompts("compact", load_tokenizer(SOURCE))
    tasks = load_tasks("generated", split="train", count=LEARNT + HELD_OUT)
    return [one_row(prompts.first(task)[:TOKENS]) for task in tasks]


def one_row(tokens: list[int]) -> Batch:
    positions, zeros = torch.arange(len(tokens)), torch.zeros(len(tokens))
    ends = torch.tensor([0, len(tokens)], dtype=torch.int32)
    return Batch(torch.tensor(tokens), positions, ends, positions >= 20, zeros, zeros, positions, positions)


def engine(policy: Policy, rounding: Callable[[Tensor], Tensor]) -> Policy:
    """The policy that an engine would have: merged weights, rounded."""
    made = base()
    for name, layer in adapted(policy.model):
        a, b = layer.lora_A.weight.data, layer.lora_B.weight.data
        rounded = rounding(torch.addmm(layer.weight.data, b, a, alpha=layer.scale))
        made.model.get_parameter(f"{name}.weight").data.copy_(rounded)
    return made


def scores(policy: Policy, rows: list[Batch]) -> Tensor:
    return torch.tensor(list(chain.from_iterable(policy.logprobs(r).logprobs[r.loss_mask].tolist() for r in rows)))


if __name__ == "__main__":
    main()
