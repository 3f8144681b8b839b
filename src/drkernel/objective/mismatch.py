"""Mismatch: what to do with tokens on which the trainer and the engine that sampled them disagree.

The engine computes with other kernels, in other batches, often in lower precision, so even at equal weights

    delta = log pi_train(token) - log pi_rollout(token)

is not 0. `rollout_correction` rejects what disagrees too much (MRS, paper eq. 6); `importance_weights` reweighs instead
(TIS, Yao et al. 2025), which the paper's recipe leaves off. Both look at one of these ratios, the `level`:

    token            exp(delta)
    turn             exp(sum of delta over the turn)
    trajectory       exp(sum of delta over all turns of the trajectory)
    turn_geometric   exp(mean of delta over the turn)
    geometric        exp(mean of delta over all turns of the trajectory)

and take the same tensors, T tokens laid out in any way as long as no trajectory is split between calls:

    logp_train, logp_rollout   float [T]   log-probabilities at the same weights and temperature
    turn_ids, trajectory_ids   int64 [T]   any numbers, equal for tokens of the same turn or trajectory
    loss_mask                  bool  [T]   tokens that the policy sampled; nothing else is looked at

Engines do return NaN now and then: a token whose delta is not finite is masked and counted, and its turn lives on.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from drkernel.objective.metric_sums import MetricSums, mean_of, ratio
from drkernel.objective.segments import segment_sum
from drkernel.types import DrKernelError

LEVELS = {
    "token": ("token", False),
    "turn": ("turn", False),
    "trajectory": ("trajectory", False),
    "turn_geometric": ("turn", True),
    "geometric": ("trajectory", True),
}
"""The values of `filters.mrs.level` and `algo.importance_level`: over what log ratios are added, and if averaged."""
EXPONENT_LIMIT = 20.0  # exp(20) is 5e8: beyond every bound, and far from overflow


def rollout_correction(
    logp_train: Tensor,
    logp_rollout: Tensor,
    turn_ids: Tensor,
    trajectory_ids: Tensor,
    loss_mask: Tensor,
    *,
    level: str = "geometric",
    lower: float = 0.999,
    upper: float = 1.001,
    veto: float = 1e-4,
) -> tuple[Tensor, MetricSums]:
    """MRS: keep a token iff lower <= ratio of its `level` <= upper and its turn is not vetoed. Paper eq. 6.

    One token with exp(delta) < `veto` rejects its whole turn; 0 switches the veto off. The defaults are the paper's.
    Returns the mask of the tokens that stay, bool [T], within `loss_mask`, and metrics.

    The band bounds the mean of delta by 1e-3, about the noise of bf16; that noise falls with 1 / sqrt(tokens), so short
    trajectories are rejected more often: watch `mrs/kept` and `mismatch/abs_delta`.

    Two trajectories of two tokens, the second 1 % off; the prompt token in front is not looked at:

    >>> train = torch.tensor([0.0, -1.0, -2.0, -1.00, -2.00])
    >>> rollout = torch.tensor([9.0, -1.1, -1.9, -1.01, -2.01])
    >>> ids, mask = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([False, True, True, True, True])
    >>> keep, metrics = rollout_correction(train, rollout, ids, ids, mask)
    >>> keep.tolist()
    [False, True, True, False, False]
    >>> metrics["mrs/kept"].tolist()
    [2.0, 4.0]
    """
    if not 0 < lower <= upper:
        raise DrKernelError(f"mismatch bounds: found lower={lower}, upper={upper}, expected 0 < lower <= upper")
    delta, valid = _log_ratios(logp_train, logp_rollout, loss_mask)
    log_ratio = _by_level(delta, valid, turn_ids, trajectory_ids, level)
    keep = valid & (log_ratio >= math.log(lower)) & (log_ratio <= math.log(upper))
    vetoed = valid & (segment_sum((delta.exp() < veto).double(), turn_ids) > 0)
    keep = keep & ~vetoed
    return keep, _diagnose(delta, valid, loss_mask) | {
        "mrs/kept": mean_of(keep.double(), loss_mask),
        "mismatch/vetoed": mean_of(vetoed.double(), loss_mask),
    }


def importance_weights(
    logp_train: Tensor,
    logp_rollout: Tensor,
    turn_ids: Tensor,
    trajectory_ids: Tensor,
    loss_mask: Tensor,
    *,
    level: str = "token",
    cap: float = 2.0,
) -> Tensor:
    """TIS: min(ratio of the token's `level`, cap), a constant factor on its loss. float32 [T], 0 outside `loss_mask`.

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training". Off in the
    paper's recipe; its code offers token, turn and trajectory with cap 2.

    >>> train, rollout = torch.tensor([0.5, 0.25, 0.25]).log(), torch.tensor([0.125, 0.25, 0.5]).log()
    >>> ids, mask = torch.tensor([0, 0, 0]), torch.ones(3, dtype=torch.bool)
    >>> importance_weights(train, rollout, ids, ids, mask).tolist()
    [2.0, 1.0, 0.5]
    """
    delta, valid = _log_ratios(logp_train, logp_rollout, loss_mask)
    log_ratio = _by_level(delta, valid, turn_ids, trajectory_ids, level)
    weights = log_ratio.clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT).exp().clamp(max=cap)
    return torch.where(valid, weights, 0.0).float()


def _log_ratios(logp_train: Tensor, logp_rollout: Tensor, loss_mask: Tensor) -> tuple[Tensor, Tensor]:
    """delta, and the sampled tokens on which it is finite; 0 elsewhere. Float64, for the sums are held to 1e-3."""
    delta = logp_train.detach().double() - logp_rollout.double()
    valid = loss_mask & delta.isfinite()
    return torch.where(valid, delta, 0.0), valid


def _by_level(delta: Tensor, valid: Tensor, turn_ids: Tensor, trajectory_ids: Tensor, level: str) -> Tensor:
    """The log of the ratio that each token is judged by, [T]."""
    if level not in LEVELS:
        raise DrKernelError(f"mismatch level: found {level!r}, expected one of {', '.join(LEVELS)}")
    unit, averaged = LEVELS[level]
    if unit == "token":
        return delta
    ids = turn_ids if unit == "turn" else trajectory_ids
    total = segment_sum(delta, ids)
    return total / segment_sum(valid.double(), ids).clamp(min=1) if averaged else total


def _diagnose(delta: Tensor, valid: Tensor, loss_mask: Tensor) -> MetricSums:
    """How far the engine is from the trainer, before anything is rejected.

    kl is the k3 estimate of KL(rollout || train). ess is sum(w) / sum(w^2) of the token ratios w: the effective share
    of the sample, as long as the mean of w is near 1.
    """
    weight = delta.clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT).exp()
    weights = torch.where(valid, weight, 0.0)
    return {
        "mismatch/delta": mean_of(delta, valid),
        "mismatch/abs_delta": mean_of(delta.abs(), valid),
        "mismatch/kl": mean_of(weight - 1 - delta, valid),
        "mismatch/ess": ratio(weights.sum(), (weights**2).sum()),
        "mismatch/not_finite": mean_of((~valid).double(), loss_mask),
    }
