"""Rewards: what a verdict is worth.

    binary      C                              was it right
    speedup     C * (1 + min(s, cap))          and how fast
    profiling   C * (1 + min(s, cap) + PR)     and how much of the work is its own (paper eq. 1, 8)

C is 1 for a correct and honest submission, s the speed-up, PR the coverage. Failed, wrong and hacked submissions earn
0, whatever was measured of them. Every reward takes the same three tensors, so that a config can name any of them:

    correct   bool  [...]   C
    speedup   float [...]   reference time / submission time; NaN or 0 where not timed
    coverage  float [...]   share in [0, 1] of device time in the submission's own Triton kernels; NaN or 0 if unknown

Its own options are keyword-only parameters with defaults, which become keys of the `reward` config group. Two rewards
that share an option agree on its default. Those of today:

    cap       speed-up from which more speed pays no more
    scale     factor on everything; 1 is the paper, 0.5 its published code
    coverage_from   speed-up from which coverage pays; 0 is the paper
"""

from __future__ import annotations

import torch
from torch import Tensor


def binary(correct: Tensor, speedup: Tensor, coverage: Tensor, *, scale: float = 1.0) -> Tensor:
    """R = C. float32 [...].

    >>> binary(torch.tensor([True, False]), torch.tensor([2.0, 2.0]), torch.tensor([0.5, 0.5])).tolist()
    [1.0, 0.0]
    """
    return scale * correct.float()


def speedup(correct: Tensor, speedup: Tensor, coverage: Tensor, *, cap: float = 3.0, scale: float = 1.0) -> Tensor:
    """R = C * (1 + min(s, cap)). Paper section 4: eq. 1 without coverage. float32 [...].

    >>> right, s = torch.tensor([True, True, False]), torch.tensor([1.5, 40.0, 40.0])
    >>> speedup(right, s, torch.zeros(3)).tolist()
    [2.5, 4.0, 0.0]
    """
    return scale * (correct + _measured(correct, speedup).clamp(0, cap))


def profiling(
    correct: Tensor,
    speedup: Tensor,
    coverage: Tensor,
    *,
    cap: float = 3.0,
    scale: float = 1.0,
    coverage_from: float = 1.0,
) -> Tensor:
    """R = C * (1 + min(s, cap) + PR * [s >= coverage_from]). Paper eq. 1 and 8. float32 [...].

    Departure: PR pays only from s = 1 on, else a full rewrite at half the speed of the reference (s 0.5, PR 0.9) earns
    more than a hybrid that beats it (s 1.15, PR 0.1). `coverage_from=0` is the paper.

    >>> right, s, pr = torch.tensor([True, True, False]), torch.tensor([2.0, 0.5, 2.0]), torch.full((3,), 0.75)
    >>> profiling(right, s, pr).tolist()
    [3.75, 1.5, 0.0]
    >>> profiling(right, s, pr, coverage_from=0).tolist()
    [3.75, 2.25, 0.0]
    >>> profiling(right, s, pr, coverage_from=0, scale=0.5).tolist()
    [1.875, 1.125, 0.0]
    """
    speed = _measured(correct, speedup)
    own_work = _measured(correct, coverage).clamp(0, 1)
    return scale * (correct + speed.clamp(0, cap) + own_work * (speed >= coverage_from))


def overlong_due(lengths: Tensor, limit: int, window: int) -> Tensor:
    """How much of the penalty for long completions is due: 0 up to limit - window tokens, then linearly up to 1 at the
    limit. float32 [...].

    Source: DAPO (Yu et al. 2025), eq. 13, where the largest penalty is 1. The paper's recipe has none. It is no part of
    what a verdict is worth: it is taken off the reward of any turn, of a failed one too.

    lengths   float [...]   tokens of the completion

    >>> overlong_due(torch.tensor([600.0, 900.0, 1000.0]), limit=1000, window=200).tolist()
    [0.0, 0.5, 1.0]
    """
    return ((lengths - (limit - window)) / window).clamp(0, 1)


def _measured(correct: Tensor, values: Tensor) -> Tensor:
    """`values` of correct submissions; 0 for the others and for what was not measured."""
    return torch.where(correct, values.nan_to_num(0.0), 0.0)


REWARDS = {"binary": binary, "speedup": speedup, "profiling": profiling}
"""The values of `reward.name`."""
