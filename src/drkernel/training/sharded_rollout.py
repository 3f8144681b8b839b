"""A rollout over all ranks: the tasks to play, and the episodes of which every rank generates a shard."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drkernel.objective.filters import GROUP_FILTERS, surviving_groups
from drkernel.objective.metric_sums import MetricSums, add
from drkernel.objective.rollouts import Rollouts
from drkernel.policy.engine import Completion
from drkernel.rollout import Ahead, RolloutTimes, Stopped, rollout
from drkernel.training.build import episode_config
from drkernel.training.judging import cores_for_judge, workers
from drkernel.training.rollout_metrics import describe_all, describe_groups, why_no_signal
from drkernel.training.trainer import Trainer
from drkernel.types import Task, Trajectory


@dataclass
class StepRollouts:
    """The rollouts of one step."""

    cursor: int
    """Tasks drawn in the run so far."""
    groups: int
    """Groups rolled out in the run so far."""
    with_signal: dict[str, set[int]]
    """For each group filter the groups that it keeps."""
    trajectories: list[Trajectory] = field(default_factory=list)
    """Those of the groups that are kept."""
    every: list[Trajectory] = field(default_factory=list)
    """All of them, also of groups that were dropped, and those on which the judge failed."""
    filter_sums: MetricSums = field(default_factory=dict)
    """The metrics of the group filters, over all groups."""
    refilled: int = 0
    """Groups drawn in place of dropped ones."""
    surplus: set[int] = field(default_factory=set)
    """Groups that could train, but were drawn after as many as a step needs."""
    times: RolloutTimes = field(default_factory=RolloutTimes)
    ahead: dict[str, Any] = field(default_factory=dict)
    """What was begun of the next step (training/overlap.py)."""

    def add(self, every: list[Trajectory], groups: int, times: RolloutTimes, refills: bool) -> None:
        """Takes in the rollouts of `groups` groups."""
        self.every, self.times = self.every + every, self.times + times
        self.refilled += groups if refills else 0

    def find_signal(self, table: Rollouts, filters: Mapping[str, Mapping[str, Any]]) -> set[int]:
        """The groups of a table that all group filters, name -> options, keep; remembers what each of them says."""
        alive = set(table.groups.tolist())
        for name, options in filters.items():
            decision = GROUP_FILTERS[name](table, **options)
            self.filter_sums = add(self.filter_sums, decision.metrics)
            survivors = set(surviving_groups(decision, table.groups).tolist())
            self.with_signal[name] |= survivors
            alive &= survivors
        return alive

    def take(self, fresh: list[Trajectory], alive: set[int], missing: int) -> None:
        """Keeps the trajectories of the first `missing` groups of `alive`, in the order in which they were drawn."""
        taken = sorted(alive)[:missing]
        self.surplus |= alive.difference(taken)
        self.trajectories += [trajectory for trajectory in fresh if trajectory.group in taken]

    def take_any(self, fresh: list[Trajectory], number: int) -> None:
        """Keeps the trajectories of the first `number` groups, whether filters keep them or not."""
        taken = sorted({trajectory.group for trajectory in fresh})[:number]
        self.trajectories = [trajectory for trajectory in fresh if trajectory.group in taken]


def describe_rollouts(trainer: Trainer, played: StepRollouts) -> dict[str, float]:
    """The metrics of all rollouts of a step. Says so where none of them carried signal, and why."""
    reward = trainer.config.reward
    kept = {trajectory.group for trajectory in played.every}.intersection(*played.with_signal.values())
    if line := why_no_signal(reward, played.every, kept):
        trainer.progress.log(f"step {trainer.state.step}: {line}")
    groups = describe_groups(reward, played.every, kept, played.refilled, len(played.surplus))
    return describe_all(reward, played.every) | groups


def draw(trainer: Trainer, cursor: int, number: int) -> tuple[list[Task], int, RolloutTimes]:
    """The next tasks that the policy and every node's judge can use, the same for all ranks, and the tasks drawn then.

    Collective.
    """
    started = time.perf_counter()
    tasks, cursor = trainer.sampler.draw(cursor, number)
    return tasks, cursor, RolloutTimes(waiting=time.perf_counter() - started)


def play(
    trainer: Trainer,
    tasks: list[Task],
    samples: int,
    turns: int,
    *,
    first_group: int,
    seed: int,
    title: str,
    begun: Mapping[tuple[int, int], Completion] | None = None,
    ahead: Ahead | None = None,
) -> tuple[list[Trajectory], RolloutTimes]:
    """Multi-turn episodes, `samples` per task. Each rank, or group of ranks with one engine, generates a shard;
    trajectories are all-gathered, and so is what was generated of a later rollout (`ahead`).

    Collective. Raises Stopped on all ranks where a signal came to one of them meanwhile.
    """
    config, ranks, paused = trainer.config, trainer.ranks, trainer.engine.paused_s

    def play_shard(shard: tuple[int, int]) -> tuple[list[Trajectory], RolloutTimes]:
        return rollout(
            trainer.engine,
            trainer.judge,
            trainer.prompts,
            tasks,
            samples,
            episode_config(config, turns),
            seed=seed,
            first_group=first_group,
            shard=shard,
            on_progress=trainer.progress.rollout(title),
            should_stop=trainer.should_stop,
            begun=begun,
            ahead=ahead,
        )

    mine = None
    with cores_for_judge(workers(config)), contextlib.suppress(Stopped):
        mine, times = trainer.engine.play(play_shard, (ranks.rank, ranks.size)) or ([], RolloutTimes())
    paused, finished = trainer.engine.paused_s - paused, time.perf_counter()
    if ranks.all_reduce_any(mine is None):
        raise Stopped
    assert mine is not None
    if ahead:
        ahead.completions = dict(ranks.all_gather_list(list(ahead.completions.items())))
    times += RolloutTimes(generating=-paused, waiting=paused, peers=time.perf_counter() - finished)
    return sorted(ranks.all_gather_list(mine), key=lambda trajectory: (trajectory.group, trajectory.sample)), times
