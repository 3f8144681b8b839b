"""What the config makes of rollouts: rewards, filters and the numbers that describe them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

from torch import Tensor

from drkernel.config import Config, RewardConfig
from drkernel.objective.metrics import fast_at
from drkernel.objective.rewards import REWARDS
from drkernel.objective.rollouts import Rollouts, tabulate
from drkernel.objective.tally import mean_of, means
from drkernel.types import Trajectory


def tabulated(config: Config, trajectories: list[Trajectory]) -> Rollouts:
    """Verdicts as tensors, and the reward that the config chooses."""
    return tabulate(trajectories, reward_of(config.reward), config.reward.hack_check)


def reward_of(config: RewardConfig) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The chosen function of objective/rewards.py, its options bound: (correct, speedup, coverage) -> reward."""
    options = dataclasses.asdict(config)
    del options["hack_check"]  # decides what counts as correct
    return partial(REWARDS[options.pop("name")], **options)


def turn_filters(config: Config) -> dict[str, dict]:
    """The filters of `objective.filters` that are on, with their options."""
    chosen = {}
    if config.filters.zero_variance:
        chosen["zero_variance"] = {"min_std": config.filters.zero_variance.min_std}
    if config.filters.prs:
        chosen["prs"] = dataclasses.asdict(config.filters.prs)
    return chosen


def describe(rollouts: Rollouts) -> dict[str, float]:
    """What the rollouts of a step were like, over all turns; `speedup` and `coverage` over correct answers."""
    every = {
        "reward": rollouts.rewards,
        "correct": rollouts.correct,
        "fast@1": fast_at(rollouts.correct, rollouts.speedup, 1.0),
        "fast@1.2": fast_at(rollouts.correct, rollouts.speedup, 1.2),
        "hacks": rollouts.hack,
        "lazy": rollouts.lazy,
    }
    tally = {name: mean_of(values.double(), rollouts.exists) for name, values in every.items()}
    right = {name: mean_of(getattr(rollouts, name), rollouts.correct) for name in ("speedup", "coverage")}
    return means(tally | right)
