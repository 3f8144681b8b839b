"""What the config makes of rollouts: rewards, the advantage estimator, and the numbers that describe rollouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from torch import Tensor

from drkernel.config import AlgoConfig, RewardConfig
from drkernel.objective.advantages import ADVANTAGES
from drkernel.objective.metric_sums import mean_of, means
from drkernel.objective.metrics import fast_at
from drkernel.objective.rewards import REWARDS
from drkernel.objective.rollouts import Rollouts, tabulate
from drkernel.registry import bind
from drkernel.types import Trajectory


def tabulate_rollouts(config: RewardConfig, trajectories: list[Trajectory]) -> Rollouts:
    """Verdicts as tensors, and the reward that the config chooses."""
    return tabulate(trajectories, make_reward(config), config.hack_check)


def make_reward(config: RewardConfig) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The chosen function of objective/rewards.py with its options: (correct, speedup, coverage) -> reward."""
    return bind(REWARDS[config.name], dataclasses.asdict(config))


def make_estimator(config: AlgoConfig) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The chosen entry of objective/advantages.py with its options.

    (returns, turn_mask, groups, baseline) -> advantages. To be made once per run: an estimator may remember what it has
    seen.
    """
    return bind(ADVANTAGES[config.advantage], dataclasses.asdict(config))


def describe(rollouts: Rollouts) -> dict[str, float]:
    """Means over all turns of a step; those of `speedup` and `coverage` over correct turns."""
    every = {
        "reward": rollouts.rewards,
        "correct": rollouts.correct,
        "fast@1": fast_at(rollouts.correct, rollouts.speedup, 1.0),
        "fast@1.2": fast_at(rollouts.correct, rollouts.speedup, 1.2),
        "hacks": rollouts.hack,
        "lazy": rollouts.lazy,
    }
    sums = {name: mean_of(values.double(), rollouts.turn_mask) for name, values in every.items()}
    correct = {name: mean_of(getattr(rollouts, name), rollouts.correct) for name in ("speedup", "coverage")}
    return means(sums | correct)
