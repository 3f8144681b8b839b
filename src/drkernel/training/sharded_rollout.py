"""A rollout over all ranks: the tasks to play, and the episodes of which every rank generates a shard."""

from __future__ import annotations

import contextlib
import time

from drkernel.rollout import RolloutTimes, Stopped, rollout
from drkernel.training.build import episode_config
from drkernel.training.judging import cores_for_judge, paused_s
from drkernel.training.trainer import Trainer
from drkernel.types import Task, Trajectory


def draw(trainer: Trainer, cursor: int, number: int) -> tuple[list[Task], int, RolloutTimes]:
    """The next tasks whose reference the judge can use, the same for all ranks, and the tasks drawn after that.

    Collective.
    """
    started = time.perf_counter()
    tasks, cursor = trainer.ranks.broadcast_object(lambda: trainer.sampler.draw(cursor, number))
    return tasks, cursor, RolloutTimes(waiting=time.perf_counter() - started)


def play(
    trainer: Trainer, tasks: list[Task], samples: int, turns: int, *, first_group: int, seed: int, title: str
) -> tuple[list[Trajectory], RolloutTimes]:
    """Multi-turn episodes, `samples` per task. Each rank generates a shard; trajectories are all-gathered.

    Collective. Raises Stopped on all ranks where a signal came to one of them meanwhile.
    """
    config, ranks, paused = trainer.config, trainer.ranks, paused_s(trainer.engine)
    mine = None
    with cores_for_judge(config.judge.workers), contextlib.suppress(Stopped):
        mine, times = rollout(
            trainer.engine,
            trainer.judge,
            trainer.prompts,
            tasks,
            samples,
            episode_config(config, turns),
            seed=seed,
            first_group=first_group,
            shard=(ranks.rank, ranks.size),
            on_progress=trainer.progress.rollout(title),
            should_stop=trainer.should_stop,
        )
    paused, finished = paused_s(trainer.engine) - paused, time.perf_counter()
    if ranks.all_reduce_any(mine is None):
        raise Stopped
    assert mine is not None
    times += RolloutTimes(generating=-paused, waiting=paused, peers=time.perf_counter() - finished)
    return sorted(ranks.all_gather_list(mine), key=lambda trajectory: (trajectory.group, trajectory.sample)), times
