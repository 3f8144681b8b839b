"""One optimizer step over a packed batch, in micro-batches that add up exactly, distributed over ranks.

Every rank calls with the whole batch, works on its own micro-batches (`packing.shard_microbatches`) and gets the whole
result. Each token's loss carries a weight that was made from the counts of the whole batch, so gradients, losses and
entropies of micro-batches and ranks are sums. The host never waits for the device between micro-batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from drkernel.config import AlgoConfig, TrainerConfig
from drkernel.objective.loss import count, kl_to_reference, mean_log_ratio, policy_loss, token_weights
from drkernel.objective.metric_sums import MetricSums
from drkernel.policy.attention import to_device
from drkernel.policy.model import Policy, autocast
from drkernel.training.packing import shard_microbatches
from drkernel.training.ranks import SINGLE, Ranks
from drkernel.training.sharding import set_gradient_sync
from drkernel.types import Batch

WHOLE_GRADIENTS = 2**33
"""Bytes. A sharded policy whose float32 gradients are smaller keeps them whole until the last micro-batch, and adds
them up over ranks once."""


@dataclass
class PolicyLoss:
    """The clipped loss of one minibatch, to be called by `step` with some of its tokens."""

    algo: AlgoConfig
    advantages: Tensor  # float32 [T]
    weights: Tensor  # float32 [T], from the counts of the whole minibatch
    old_logprobs: Tensor | None  # float32 [T], before the rollout's first optimizer step; None: this is the first
    reference: Tensor | None = None  # float32 [T], log-probabilities under the reference policy (algo.kl_coef)
    sequence_ids: Tensor | None = None  # int64 [T], the sequences of algo.ratio_level; None: each token has its own
    log_ratio: Tensor | None = None  # float32 [T], of the sequences that `see_all` saw
    metrics: list[MetricSums] = field(default_factory=list)
    """Those of each call; they add up."""

    @classmethod
    def of(
        cls,
        algo: AlgoConfig,
        minibatch: Batch,
        old_logprobs: Tensor | None,
        device: torch.device,
        reference: Tensor | None = None,
    ) -> PolicyLoss:
        """For a packed batch that holds its advantages and the tokens that train."""
        mask, turns = minibatch.loss_mask, minibatch.turn_ids
        weights = token_weights(algo.aggregation, mask, turns, count(mask, turns), algo.loss_scale)
        loss = cls(algo, minibatch.advantages.to(device), weights.to(device), old_logprobs, reference)
        if algo.ratio_level != "token" and old_logprobs is not None:  # the ratio of a first step is 1 at any level
            loss.sequence_ids = (turns if algo.ratio_level == "turn_geometric" else minibatch.trajectory_ids).to(device)
            loss.log_ratio = torch.zeros_like(loss.weights)
        return loss

    @property
    def entropy_bonus(self) -> Tensor | None:
        """How much each token's entropy takes off the loss, float32 [T]."""
        return self.algo.entropy_coef * self.weights if self.algo.entropy_coef else None

    @property
    def needs_all(self) -> bool:
        """Whether `see_all` must come before a call."""
        return self.sequence_ids is not None

    def see_all(self, logprobs: Tensor, positions: Tensor) -> None:
        """Take in the log-probabilities of whole rows, float32 [n], that lie at `positions` of the minibatch."""
        assert self.sequence_ids is not None and self.old_logprobs is not None and self.log_ratio is not None
        old, trains = self.old_logprobs[positions], self.weights[positions] != 0
        self.log_ratio[positions] = mean_log_ratio(logprobs, old, self.sequence_ids[positions], trains)

    def __call__(self, logprobs: Tensor, index: Tensor) -> Tensor:
        old = logprobs.detach() if self.old_logprobs is None else self.old_logprobs[index]
        clip = {"clip_low": self.algo.clip_low, "clip_high": self.algo.clip_high, "dual_clip": self.algo.dual_clip}
        whole = None if self.log_ratio is None else self.log_ratio[index]
        loss, metrics = policy_loss(logprobs, old, self.advantages[index], self.weights[index], whole, **clip)
        if self.reference is not None:
            penalty, measured = kl_to_reference(logprobs, self.reference[index], self.weights[index])
            loss, metrics = loss + self.algo.kl_coef * penalty, metrics | measured
        self.metrics.append(metrics)
        return loss


def make_optimizer(
    policy: Policy, lr: float, weight_decay: float, betas: tuple[float, float] = (0.9, 0.999)
) -> torch.optim.AdamW:
    """AdamW over what trains, with decay on matrices only. For a policy that is to be sharded, shard it first."""
    matrices = [p for p in trained(policy) if p.ndim >= 2]
    vectors = [p for p in trained(policy) if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)


def learning_rate(peak: float, config: TrainerConfig, step: int) -> float:
    """The learning rate of step `step`, counted from 0: a function of the config and the step alone.

    >>> config = TrainerConfig(lr_schedule="linear", lr_warmup=2, lr_steps=6, lr_end=0.5)
    >>> [learning_rate(1.0, config, step) for step in range(8)]
    [0.5, 1.0, 0.875, 0.75, 0.625, 0.5, 0.5, 0.5]
    """
    return peak * schedule(step, config.lr_steps or 0, config.lr_warmup, config.lr_end, config.lr_schedule)


def schedule(step: int, steps: int, warmup: int, end: float, kind: str) -> float:
    """Factor of the peak learning rate in step `step`, counted from 0.

    The step number `warmup`, or the first one, is the first at the peak, after a linear rise. The step number `steps`
    is the first at `end`, after a `linear` or a `cosine` fall; `constant` has neither.
    """
    rising = max(1, warmup)
    if step < rising:
        return (step + 1) / rising
    if kind == "constant":
        return 1.0
    falling = max(1, steps - rising)
    done = min(step + 1 - rising, falling)
    left = 1 - done / falling if kind == "linear" else (1 + math.cos(math.pi * done / falling)) / 2
    return end + (1 - end) * left


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """For the next optimizer steps, of all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    token_loss: Callable[[Tensor, Tensor], Tensor],
    *,
    max_tokens: int,
    max_grad_norm: float,
    temperature: float = 1.0,
    ranks: Ranks = SINGLE,
) -> dict[str, float]:
    """Accumulate gradients over micro-batches of at most `max_tokens` tokens, clip, step. Collective.

    batch: the whole optimizer step's, on the CPU, the same on every rank.
    token_loss(logprobs float32 [n], index int64 [n]) -> scalar: the sum of the losses of the tokens at `index` of
    `batch`, already divided by the counts of the whole batch. Both are on the policy's device. A PolicyLoss may also
    add a bonus for entropy, and see whole rows before it is called.

    A step is skipped, by all ranks, if its gradient is not finite or if the filters left no token to train on.

    Returns loss, entropy (nats per sampled token), grad_norm (before clipping), skipped (0 or 1), tokens: the same on
    every rank.
    """
    optimizer.zero_grad(set_to_none=True)
    device = policy.device
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    microbatches = shard_microbatches(batch, max_tokens, ranks.size)[ranks.rank]
    sync_once = isinstance(policy, FSDPModule) and 4 * sum(p.numel() for p in trained(policy)) <= WHOLE_GRADIENTS
    for number, (index, micro) in enumerate(microbatches, 1):
        if sync_once:
            set_gradient_sync(policy, number == len(microbatches))
        with autocast(policy):
            indexed = _Indexed(token_loss, to_device(index, device))
            scores = policy.backward(micro, indexed, temperature, **indexed.more())
        sums += torch.stack((scores.loss, scores.entropy.sum()))
    norm = clip_gradients(policy, max_grad_norm, ranks)
    sampled = int(batch.loss_mask.sum())
    skipped = not math.isfinite(norm) or not sampled
    if not skipped:
        optimizer.step()
    loss, entropy = ranks.all_reduce_sum(sums).tolist()
    return {
        "loss": loss,
        "entropy": entropy / max(sampled, 1),
        "grad_norm": norm,
        "skipped": int(skipped),
        "tokens": len(batch.tokens),
    }


def trained(policy: Policy) -> list[torch.nn.Parameter]:
    """The parameters that train: all of them, or those of the adapters."""
    return [parameter for parameter in policy.parameters() if parameter.requires_grad]


@dataclass(frozen=True)
class _Indexed:
    """A loss of a batch's tokens as one of a micro-batch's."""

    token_loss: Callable[[Tensor, Tensor], Tensor]
    positions: Tensor  # int64 [tokens of the micro-batch], in the batch

    def __call__(self, logprobs: Tensor, index: Tensor) -> Tensor:
        return self.token_loss(logprobs, self.positions[index])

    def more(self) -> dict[str, Any]:
        """The options of `Policy.backward` that a PolicyLoss asks for."""
        loss, more = self.token_loss, dict[str, Any]()
        if isinstance(loss, PolicyLoss) and loss.entropy_bonus is not None:
            more["entropy_bonus"] = loss.entropy_bonus[self.positions]
        if isinstance(loss, PolicyLoss) and loss.needs_all:
            more["see_all"] = lambda logprobs: loss.see_all(logprobs, self.positions)
        return more


def merge_steps(steps: list[dict[str, float]]) -> dict[str, float]:
    """The metrics of all optimizer steps of one rollout: `skipped` and `tokens` are sums, `updates` is the number of
    steps, the others are means of what is finite.

    >>> merge_steps([{"loss": 1.0, "skipped": 1, "tokens": 4}, {"loss": 2.0, "skipped": 0, "tokens": 6}])
    {'loss': 1.5, 'skipped': 1, 'tokens': 10, 'updates': 2}
    """
    merged: dict[str, float] = {}
    for name in steps[0]:
        values = [step[name] for step in steps]
        finite = [value for value in values if math.isfinite(value)] or values
        merged[name] = sum(values) if name in ("skipped", "tokens") else sum(finite) / len(finite)
    return merged | {"updates": len(steps)}


def has_learnt(metrics: Mapping[str, float]) -> bool:
    """Whether at least one optimizer step of a rollout, whose metrics these are, was not skipped."""
    return metrics.get("skipped", 0) < metrics.get("updates", 1)


@torch.no_grad()
def clip_gradients(policy: Policy, max_norm: float, ranks: Ranks = SINGLE) -> float:
    """Scale gradients down to a norm of at most `max_norm` over all parameters and ranks; returns the norm before.

    Collective.

    Gradients of a sharded policy are sums over ranks already; those of a whole one are added up here.
    """
    parameters = trained(policy)
    if ranks.size > 1 and not isinstance(policy, FSDPModule):
        _add_up(parameters, ranks)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return float(norm)


def _add_up(parameters: list[torch.nn.Parameter], ranks: Ranks) -> None:
    """The gradients of a policy that every rank has whole become sums over ranks, in one message."""
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    gradients = [cast(Tensor, parameter.grad) for parameter in parameters]
    flat = ranks.all_reduce_sum(torch.cat([gradient.flatten() for gradient in gradients]))
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, total in zip(gradients, parts, strict=True):
        gradient.copy_(total.view_as(gradient))


def logprobs(
    policy: Policy, batch: Batch, *, max_tokens: int, temperature: float = 1.0, ranks: Ranks = SINGLE
) -> Tensor:
    """log pi(token) under the trainer for the whole batch, float32 [T] on the CPU; 0 outside the loss mask.

    Collective.
    """
    values = torch.zeros(len(batch.tokens), device=policy.device)
    for index, micro in shard_microbatches(batch, max_tokens, ranks.size)[ranks.rank]:
        with autocast(policy):
            # A filler repeats a row with nothing to score: it adds zeros.
            values[to_device(index, values.device)] += policy.logprobs(micro, temperature).logprobs
    return ranks.all_reduce_sum(values).cpu()
