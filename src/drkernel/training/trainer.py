"""What a training run is made of, where it stands, and how both are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from drkernel.config import Config
from drkernel.judge import Judge
from drkernel.judge.remote import Client
from drkernel.policy.engine import Engine
from drkernel.policy.model import Policy
from drkernel.policy.prompts import Prompts
from drkernel.rollout.episodes import RolloutTimes
from drkernel.training import checkpoint
from drkernel.training.progress import Progress
from drkernel.training.ranks import Ranks
from drkernel.training.run import Run
from drkernel.training.sampler import Sampler
from drkernel.types import Task


@dataclass
class State:
    """Where a run stands, besides weights and optimizer: all that the next step depends on."""

    step: int = 0
    cursor: int = 0  # tasks drawn so far
    groups: int = 0  # groups rolled out so far
    skipped: int = 0  # steps without an update
    wandb_id: str | None = None
    metrics_offset: int = 0


@dataclass
class Trainer:
    """What a run is made of; built once, in train.py's `train`."""

    config: Config
    sampler: Sampler
    policy: Policy
    prompts: Prompts
    engine: Engine
    judge: Judge | Client
    progress: Progress
    ranks: Ranks = field(default_factory=Ranks)
    state: State = field(default_factory=State)
    stopping: Callable[[], bool] = lambda: False
    """Whether a signal asks to give up a rollout."""
    spent: RolloutTimes = field(default_factory=RolloutTimes)
    """Where the seconds of this step's rollouts went."""


def log(world: Trainer, run: Run | None, metrics: dict[str, float]) -> None:
    state = world.state
    if run:
        run.log(state.step, metrics | {"tasks_drawn": state.cursor, "skipped_total": state.skipped})
    shown = "  ".join(f"{name} {metrics[name]:.2f}" for name in ("reward", "correct", "fast@1.2", "hacks", "lazy"))
    seconds = sum(value for name, value in metrics.items() if name.startswith("time/"))
    world.progress.say(f"step {state.step}/{world.config.trainer.steps}  {shown}  ({seconds:.0f} s)")


def save(world: Trainer, run: Run | None, optimizer: torch.optim.Optimizer) -> None:
    if run:
        world.state.metrics_offset = run.metrics_offset
    folder, state = checkpoints(world.config), dataclasses.asdict(world.state)
    checkpoint.save(folder, state["step"], world.policy, optimizer, state, world.config.trainer.keep, world.ranks)


def resume(world: Trainer, run: Run | None, optimizer: torch.optim.Optimizer) -> None:
    """Go on from the newest checkpoint of this run folder, if there is one."""
    folder = checkpoints(world.config)
    saved = checkpoint.load_latest(folder, world.policy, optimizer, world.ranks, world.config.seed)
    if saved:
        world.state = State(**saved)
        world.progress.say(f"resumed {world.config.run_dir} at step {world.state.step}")
    if run:
        run.rewind(world.state.metrics_offset)
        world.state.wandb_id = run.start_wandb(world.state.wandb_id)


def checkpoints(config: Config) -> Path:
    return Path(config.run_dir) / "checkpoints"


def usable(world: Trainer, tasks: list[Task]) -> list[Task]:
    """The tasks that the judge can use and whose prompt leaves room for an answer; the others are told."""
    room = world.engine.context - world.config.engine.max_answer_tokens
    fitting = [task for task in tasks if len(world.prompts.first(task)) <= room]
    if len(fitting) < len(tasks):
        world.progress.say(f"passed over: {len(tasks) - len(fitting)} test tasks with prompts of over {room} tokens")
    return world.sampler.usable(fitting)
