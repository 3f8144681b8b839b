"""Supervised training from scratch on trajectories: the completion tokens of all turns, good and bad."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch

from drkernel.policy.model import Policy
from drkernel.training import update
from drkernel.training.packing import pack
from drkernel.types import Trajectory


def train(
    policy: Policy,
    trajectories: list[Trajectory],
    *,
    epochs: float,
    lr: float,
    batch_tokens: int,
    micro_batch_tokens: int,
    seed: int,
    log: Callable[[int, int, dict[str, float]], None],
) -> None:
    """Minimise the mean negative log-likelihood of completion tokens; log(step, steps, metrics) after every step."""
    size = sum(_length(trajectory) for trajectory in trajectories)
    steps = max(1, round(epochs * size / batch_tokens))
    optimizer = update.make_optimizer(policy, lr, weight_decay=0.1, betas=(0.9, 0.95))
    stream = batches(trajectories, batch_tokens, seed)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * schedule(step, steps)
        batch = pack(next(stream))
        count = int(batch.loss_mask.sum())
        metrics = update.step(
            policy,
            optimizer,
            batch,
            lambda logprobs, index: -logprobs.sum() / count,  # noqa: B023
            max_tokens=micro_batch_tokens,
            max_grad_norm=1.0,
        )
        log(step + 1, steps, metrics)


def schedule(step: int, steps: int) -> float:
    """Factor of the peak learning rate: linear warm-up over 5 % of the steps, then cosine to a tenth.

    >>> [round(schedule(step, 100), 3) for step in (0, 4, 99)]
    [0.2, 1.0, 0.1]
    """
    warm_up = max(1, steps // 20)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step + 1 - warm_up) / (steps - warm_up)))


def batches(trajectories: list[Trajectory], batch_tokens: int, seed: int) -> Iterator[list[Trajectory]]:
    """Endless shuffled passes, cut into batches of about `batch_tokens` tokens."""
    epoch, batch, tokens = 0, [], 0
    while True:
        order = list(range(len(trajectories)))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        for i in order:
            batch.append(trajectories[i])
            tokens += _length(trajectories[i])
            if tokens >= batch_tokens:
                yield batch
                batch, tokens = [], 0
        epoch += 1


@torch.no_grad()
def loss(policy: Policy, trajectories: list[Trajectory], micro_batch_tokens: int) -> float:
    """Mean negative log-likelihood (nats per completion token) of trajectories that were not trained on."""
    batch = pack(trajectories)
    values = update.logprobs(policy, batch, max_tokens=micro_batch_tokens)
    return -float(values[batch.loss_mask].mean())


def _length(trajectory: Trajectory) -> int:
    return sum(len(turn.prompt_ids) + len(turn.response_ids) for turn in trajectory.turns)
