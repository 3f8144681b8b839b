"""The policy loss: a sum over tokens, each with a weight that is known before the forward pass.

    loss = sum over tokens of weight * token_loss

How the loss averages, over tokens or over turns, is only a matter of the weights, and they are made from counts of the
whole optimizer step. So losses and gradients of chunks, micro-batches and ranks simply add up to those of the step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from drkernel.objective.metric_sums import MetricSums, mean_of
from drkernel.objective.segments import segment_sum
from drkernel.types import DrKernelError

LOG_RATIO_LIMIT = 20.0
RATIO_LEVELS = ("token", "turn_geometric", "geometric")
"""The values of `algo.ratio_level`: what the clipped ratio is of (`mismatch.LEVELS` says what the words mean)."""


def count(loss_mask: Tensor, sequence_ids: Tensor) -> Tensor:
    """How many tokens and sequences train: int64 [2]. Add it over everything that makes one optimizer step.

    loss_mask bool [T], sequence_ids int64 [T]; no sequence may be split between counts

    >>> count(torch.tensor([True, True, False, True]), torch.tensor([0, 0, 1, 2])).tolist()
    [3, 2]
    """
    return torch.stack((loss_mask.sum(), torch.tensor(len(sequence_ids[loss_mask].unique()), device=loss_mask.device)))


def token_weights(
    mode: str, loss_mask: Tensor, sequence_ids: Tensor, totals: Tensor, divisor: float = 1000.0
) -> Tensor:
    """The share of each token in the loss: float32 [T], 0 outside `loss_mask`.

    loss_mask     bool [T], tokens that train, after all filters
    sequence_ids  int64 [T], what counts as one sequence: `Batch.turn_ids` as in the paper, or `Batch.trajectory_ids`
    totals        int64 [2], `count` of the whole optimizer step, over all micro-batches and ranks
    divisor       the constant of the two modes that have one

    mode                        weight of a token
    token_mean                  1 / tokens
    sequence_mean_token_sum     1 / (sequences * divisor): the paper's, with divisor 1000
    sequence_mean_token_mean    1 / (sequences * tokens of its own sequence)
    token_sum_over_constant     1 / divisor

    Departure: the published code averages over the sequences of a micro-batch first; here all sequences weigh the same.

    >>> mask, turns = torch.tensor([True, True, True, False]), torch.tensor([0, 0, 1, 1])
    >>> totals = count(mask, turns)
    >>> token_weights("sequence_mean_token_mean", mask, turns, totals).tolist()
    [0.25, 0.25, 0.5, 0.0]
    >>> token_weights("sequence_mean_token_sum", mask, turns, totals, divisor=1.0).tolist()
    [0.5, 0.5, 0.5, 0.0]
    """
    tokens, sequences = totals.float().clamp(min=1)
    mask = loss_mask.float()
    if mode not in AGGREGATIONS:
        raise DrKernelError(f"loss aggregation: found {mode!r}, expected one of {', '.join(AGGREGATIONS)}")
    lengths = segment_sum(mask, sequence_ids).clamp(min=1)
    return mask / AGGREGATIONS[mode](tokens, sequences, divisor, lengths)


AGGREGATIONS: dict[str, Callable[[Tensor, Tensor, float, Tensor], Tensor | float]] = {
    "token_mean": lambda tokens, sequences, divisor, lengths: tokens,
    "sequence_mean_token_sum": lambda tokens, sequences, divisor, lengths: sequences * divisor,
    "sequence_mean_token_mean": lambda tokens, sequences, divisor, lengths: sequences * lengths,
    "token_sum_over_constant": lambda tokens, sequences, divisor, lengths: divisor,
}
"""The values of `algo.aggregation`: what a token's loss is divided by; `lengths` are those of the tokens' sequences."""


def mean_log_ratio(logp: Tensor, logp_old: Tensor, sequence_ids: Tensor, loss_mask: Tensor) -> Tensor:
    """The log of GSPO's ratio, by token: the mean of logp - logp_old over the tokens of its sequence that train.

    Source: Zheng et al. 2025 (GSPO), eq. 7. float [T] without a gradient, 0 outside `loss_mask`.

    logp, logp_old   float [T]   as for `policy_loss`
    sequence_ids     int64 [T]   `Batch.turn_ids` or `Batch.trajectory_ids`; no sequence may be split between calls

    >>> ids, mask = torch.tensor([0, 0, 1]), torch.tensor([True, True, True])
    >>> mean_log_ratio(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-2.0, -2.0, -2.0]), ids, mask).tolist()
    [0.5, 0.5, -1.0]
    """
    gaps = torch.where(loss_mask, (logp - logp_old).detach(), 0.0)
    means = segment_sum(gaps, sequence_ids) / segment_sum(loss_mask.to(gaps.dtype), sequence_ids).clamp(min=1)
    return torch.where(loss_mask, means, 0.0)


def policy_loss(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    weights: Tensor,
    log_ratio: Tensor | None = None,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float = 3.0,
) -> tuple[Tensor, MetricSums]:
    """The clipped surrogate of PPO with dual clip, summed with `weights`.

    Source: Schulman et al. 2017; unequal bounds, Yu et al. 2025; dual clip, Ye et al. 2020; numbers, paper section 6.1.

    With r = exp(logp - logp_old), per token, or r = exp(log_ratio) of the token's sequence,

        l = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))
        l = min(l, -A dual_clip)   where A < 0; dual_clip = inf leaves this out

    logp        float [T]  under the policy that learns; the gradient goes through this alone
    logp_old    float [T]  under the trainer's policy before the rollout's first step. `logp.detach()` if that step is
                           the only one, as in the paper's recipe: then r = 1 and no clip can act
    advantages  float [T]
    weights     float [T]  `token_weights`, if wanted times `importance_weights`; a token of weight 0 is not looked at
    log_ratio   float [T]  `mean_log_ratio`. The derivative of r is then r times that of the token's own logp, so that
                           with weights of `sequence_mean_token_mean` the gradient is that of GSPO's objective

    Returns the loss, a scalar, and metrics: the share of tokens that each clip holds back, the KL of old to new (k3).

    >>> logp = torch.tensor([0.0, 0.0], requires_grad=True)
    >>> loss, _ = policy_loss(logp, logp.detach(), torch.tensor([2.0, -1.0]), torch.tensor([0.5, 0.5]))
    >>> loss.backward()
    >>> loss.item(), logp.grad.tolist()
    (-0.5, [-1.0, 0.5])
    """
    active = weights != 0
    gap = torch.where(active, logp - logp_old, 0.0).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = gap.exp()
    if log_ratio is not None:
        own = torch.where(active, logp - logp.detach(), 0.0)  # 0, with the derivative of logp
        ratio = (own + log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)).exp()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    losses = torch.maximum(plain, clipped)
    bound = -advantages * dual_clip
    bounded = (advantages < 0) & (losses > bound)
    losses = torch.where(bounded, bound, losses)
    loss = (torch.where(active, losses, 0.0) * weights).sum()
    held = clipped > plain
    return loss, {
        "policy/clipped_low": mean_of((held & (advantages < 0)).double(), active),
        "policy/clipped_high": mean_of((held & (advantages > 0)).double(), active),
        "policy/clipped_dual": mean_of(bounded.double(), active),
        "policy/kl": mean_of((gap.exp() - 1 - gap).detach(), active),
    }


def kl_to_reference(logp: Tensor, logp_reference: Tensor, weights: Tensor) -> tuple[Tensor, MetricSums]:
    """The KL of the policy to a reference policy, summed with `weights`: a penalty on drifting away from it.

    Source: Shao et al. 2024 (GRPO), eq. 4. With d = logp_reference - logp the estimate of a token is exp(d) - d - 1
    (k3): never negative, and unbiased for tokens that the policy sampled. The paper's recipe has no such term.

    logp            float [T]  under the policy that learns; the gradient goes through this alone
    logp_reference  float [T]
    weights         float [T]  as for `policy_loss`; a token of weight 0 is not looked at

    >>> logp = torch.tensor([-1.0, -1.0], requires_grad=True)
    >>> penalty, _ = kl_to_reference(logp, torch.tensor([-1.0, -2.0]), torch.tensor([0.5, 0.5]))
    >>> penalty.backward()
    >>> round(penalty.item(), 3), round(logp.grad[1].item(), 3)
    (0.184, 0.316)
    """
    active = weights != 0
    gap = torch.where(active, logp_reference - logp, 0.0).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    penalties = gap.exp() - gap - 1
    return (penalties * weights).sum(), {"policy/kl_to_reference": mean_of(penalties.detach(), active)}
