"""Returns: what a turn is worth, given all that follows it."""

from __future__ import annotations

import torch
from torch import Tensor


def reward_to_go(rewards: Tensor, turn_mask: Tensor, gamma: float = 1.0) -> Tensor:
    """G_t = sum over t' >= t of gamma^(t' - t) * R_t'. Paper section 4.3, which uses gamma = 1.

    rewards float [B, T], turn_mask bool [B, T] -> [B, T], 0 where the turn does not exist

    With gamma = 1 a first completion that leads to a good second one is worth as much; with gamma = 0 each turn stands
    alone, which the paper finds to harm first turns.

    >>> rewards, turn_mask = torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([[True, True, True]])
    >>> reward_to_go(rewards, turn_mask).tolist()
    [[3.0, 2.0, 2.0]]
    >>> reward_to_go(rewards, turn_mask, gamma=0.5).tolist()
    [[1.5, 1.0, 2.0]]
    """
    returns = torch.where(turn_mask, rewards, 0.0)
    for turn in range(rewards.shape[1] - 2, -1, -1):
        returns[:, turn] += gamma * returns[:, turn + 1]
    return torch.where(turn_mask, returns, 0.0)


def without_regressions(rewards: Tensor, turn_mask: Tensor) -> Tensor:
    """The turns that remain when failures after a success are forgotten: bool [B, T], to be used as the turn mask.

    rewards float [B, T], turn_mask bool [B, T]

    The published code, not the paper, drops a turn whose reward is <= 0 once an earlier turn earned > 0. Off by default
    here: it hides that a working kernel was broken, so nothing teaches the policy not to.

    >>> rewards = torch.tensor([[0.0, 2.0, 0.0, 3.0]])
    >>> without_regressions(rewards, torch.ones(1, 4, dtype=torch.bool)).tolist()
    [[True, True, False, True]]
    """
    after_success = (turn_mask & (rewards > 0)).cumsum(dim=1) > 0
    return turn_mask & ~(after_success & (rewards <= 0))
