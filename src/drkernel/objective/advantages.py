"""Advantages: how much better a turn did than its group.

All estimators compare returns within a group and differ in what they subtract:

    grpo       the mean of the group, the turn itself included; with `std` also divided by the standard deviation
    rloo       the mean of the others, one number for a whole trajectory
    trloo      the mean of the others at the same turn: the paper's estimator

The group of a turn is (prompt, turn index). Trajectories may end early, so groups of later turns can be smaller than
those of the first. Every estimator has the same tensor arguments:

    returns   float [B, T]   reward-to-go of each turn
    turn_mask bool  [B, T]   which turns there are
    groups    int64 [B]      trajectories with the same number answer the same prompt
    baseline  bool  [B, T]   which turns count in the baseline, all that exist unless given (`filters.Decision`)

and returns float [B, T], 0 where there is no turn. A turn outside `baseline` still gets an advantage, relative to the
turns that are inside. Where there is nobody to compare with, the baseline is 0 and the advantage is the return, as in
verl; with `zero_alone`, an option of every estimator, the advantage is 0, as in TRL.

Options are keyword-only parameters with defaults, which become keys of the `algo` config group. An estimator that
remembers something from step to step, such as a running mean, is a class: its `__init__` takes the options, a run makes
one instance, and the instance is called with the tensors above. Its `state_dict()`, plain values and tensors, goes into
checkpoints and comes back through `load_state_dict(state)`. tests/objective/test_advantages.py has an example.
"""

from __future__ import annotations

import torch
from torch import Tensor

from drkernel.objective.segments import segment_sum


def grpo(
    returns: Tensor,
    turn_mask: Tensor,
    groups: Tensor,
    baseline: Tensor | None = None,
    *,
    std: bool = False,
    zero_alone: bool = False,
) -> Tensor:
    """A_i = G_i - mean(G), with `std` divided by std(G). Paper section 4; the std is of Shao et al. 2024.

    G_i is part of its own baseline, which shrinks the gradient: E[g] = (1 - 1/N) grad J (paper, appendix A). The std is
    the sample's (N - 1), plus 1e-6; below 1e-6 it counts as 1. Departure: the published code ignores the std flag as
    soon as there are several turns; here it holds for any number.

    >>> turn_mask, groups = torch.ones(2, 1, dtype=torch.bool), torch.tensor([0, 0])
    >>> grpo(torch.tensor([[0.0], [4.0]]), turn_mask, groups).tolist()
    [[-2.0], [2.0]]
    """
    counted, number, others = _members(returns, turn_mask, groups, baseline)
    mean = segment_sum(torch.where(counted, returns, 0.0), groups) / number.clamp(min=1)
    advantages = _relative(returns, mean, others, zero_alone)
    if std:
        squares = segment_sum(torch.where(counted, (returns - mean) ** 2, 0.0), groups)
        deviation = (squares / (number - 1).clamp(min=1)).sqrt()
        advantages = advantages / torch.where(deviation > 1e-6, deviation + 1e-6, 1.0)
    return torch.where(turn_mask, advantages, 0.0)


def trloo(
    returns: Tensor,
    turn_mask: Tensor,
    groups: Tensor,
    baseline: Tensor | None = None,
    *,
    zero_alone: bool = False,
) -> Tensor:
    """A_i = G_i - mean of G_j over the others = N / (N - 1) * (G_i - mean(G)). Paper section 4, appendix A.

    G_i is not part of its own baseline, so the gradient is unbiased for any N. Against `grpo` a turn in a group of N
    weighs N / (N - 1) times as much: 2 for N = 2, 16/15 for N = 16.

    Two trajectories of three turns, of which the second ends after one:

    >>> returns = torch.tensor([[5.0, 3.0, 2.0], [1.0, 0.0, 0.0]])
    >>> turn_mask = torch.tensor([[True, True, True], [True, False, False]])
    >>> trloo(returns, turn_mask, torch.tensor([0, 0])).tolist()
    [[4.0, 3.0, 2.0], [-4.0, 0.0, 0.0]]
    >>> trloo(returns, turn_mask, torch.tensor([0, 0]), zero_alone=True).tolist()
    [[4.0, 0.0, 0.0], [-4.0, 0.0, 0.0]]
    """
    counted, _, others = _members(returns, turn_mask, groups, baseline)
    own = torch.where(counted, returns, 0.0)
    mean_of_others = (segment_sum(own, groups) - own) / others.clamp(min=1)
    return torch.where(turn_mask, _relative(returns, mean_of_others, others, zero_alone), 0.0)


def rloo(
    returns: Tensor,
    turn_mask: Tensor,
    groups: Tensor,
    baseline: Tensor | None = None,
    *,
    zero_alone: bool = False,
) -> Tensor:
    """A_i = G_i - mean of G_j over the others, with G the return of turn 0, on every turn. Ahmadian et al. 2024.

    The trajectory is one action: its advantage does not tell a turn that helped from a turn that did not. A trajectory
    counts in the baseline if any of its turns does.

    >>> returns, turn_mask = torch.tensor([[5.0, 3.0], [1.0, 1.0]]), torch.ones(2, 2, dtype=torch.bool)
    >>> rloo(returns, turn_mask, torch.tensor([0, 0])).tolist()
    [[4.0, 4.0], [-4.0, -4.0]]
    """
    counted = turn_mask if baseline is None else turn_mask & baseline
    judged, counted = turn_mask.any(1, keepdim=True), counted.any(1, keepdim=True)
    whole = trloo(returns[:, :1], judged, groups, counted, zero_alone=zero_alone)
    return torch.where(turn_mask, whole, 0.0)


def alone(turn_mask: Tensor, groups: Tensor, baseline: Tensor) -> Tensor:
    """Turns that no other turn of their group and place is compared with: bool [B, T].

    Their advantage is their whole return, which is never negative where rewards are not, or 0 with `zero_alone`. After
    early ends that is the last trajectory of its group that still has a turn. `rloo` compares trajectories, and so
    these turns, too.

    >>> turn_mask = torch.tensor([[True, True], [True, False]])
    >>> alone(turn_mask, torch.tensor([0, 0]), turn_mask).tolist()
    [[False, True], [False, False]]
    """
    _, _, others = _members(torch.zeros(turn_mask.shape), turn_mask, groups, baseline)
    return turn_mask & (others == 0)


def _relative(returns: Tensor, baseline: Tensor, others: Tensor, zero_alone: bool) -> Tensor:
    """Returns less their baselines; where there are no others to compare with, the returns, or 0 with `zero_alone`."""
    return torch.where(others > 0, returns - baseline, 0.0 if zero_alone else returns)


def _members(
    returns: Tensor, turn_mask: Tensor, groups: Tensor, baseline: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Which turns count in the baseline; how many of them each turn's group has; how many besides the turn itself."""
    counted = turn_mask if baseline is None else turn_mask & baseline
    number = segment_sum(counted.to(returns.dtype), groups)
    return counted, number, number - counted.to(returns.dtype)


ADVANTAGES = {"grpo": grpo, "rloo": rloo, "trloo": trloo}
"""The values of `algo.advantage`."""
