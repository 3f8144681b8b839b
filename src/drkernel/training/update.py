"""One optimizer step over a packed batch, in micro-batches that add up exactly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from drkernel.policy.model import Policy
from drkernel.training.packing import split
from drkernel.types import Batch


def make_optimizer(policy: Policy, lr: float, weight_decay: float, betas: tuple[float, float] = (0.9, 0.999)):
    """AdamW with decay on matrices only."""
    matrices = [p for p in policy.parameters() if p.ndim >= 2]
    vectors = [p for p in policy.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)


def step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    token_loss: Callable[[Tensor, Tensor], Tensor],
    *,
    max_tokens: int,
    max_grad_norm: float,
    temperature: float = 1.0,
) -> dict[str, float]:
    """Accumulate gradients over micro-batches of at most `max_tokens` tokens, clip, step.

    token_loss(logprobs float32 [n], index int64 [n]) -> scalar: the sum of the losses of the tokens at `index` of
    `batch`, already divided by the counts of the whole batch.

    A step is skipped if its gradient is not finite, or if the filters left no token to train on.

    Returns loss, entropy (nats per sampled token), grad_norm (before clipping), skipped (0 or 1), tokens.
    """
    optimizer.zero_grad(set_to_none=True)
    loss, entropy = 0.0, 0.0
    for index, micro in split(batch, max_tokens):
        where = index.to(policy.device)
        with autocast(policy):
            scores = policy.backward(micro.to(policy.device), lambda lp, part: token_loss(lp, where[part]), temperature)  # noqa: B023
        loss += scores.loss.item()
        entropy += scores.entropy.sum().item()
    norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), max_grad_norm)
    skipped = not bool(torch.isfinite(norm)) or not bool(batch.loss_mask.any())
    if not skipped:
        optimizer.step()
    sampled = max(int(batch.loss_mask.sum()), 1)
    return {
        "loss": loss,
        "entropy": entropy / sampled,
        "grad_norm": float(norm),
        "skipped": int(skipped),
        "tokens": len(batch.tokens),
    }


def logprobs(policy: Policy, batch: Batch, *, max_tokens: int, temperature: float = 1.0) -> Tensor:
    """log pi(token) under the trainer, float32 [T] on the CPU; 0 outside the loss mask."""
    values = torch.zeros(len(batch.tokens))
    for index, micro in split(batch, max_tokens):
        with autocast(policy):
            values[index] = policy.logprobs(micro.to(policy.device), temperature).logprobs.cpu()
    return values


@contextlib.contextmanager
def autocast(policy: Policy) -> Iterator[None]:
    """bfloat16 matrix products on a GPU, float32 elsewhere; master weights stay float32."""
    with torch.autocast("cuda", torch.bfloat16, enabled=policy.device.type == "cuda"):
        yield
