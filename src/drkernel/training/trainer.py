"""What a training run is made of, where it stands, and how both are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drkernel.config import Config
from drkernel.judge import JudgeProtocol
from drkernel.policy.engine import Engine
from drkernel.policy.model import Policy
from drkernel.policy.prompts import Prompts
from drkernel.training import checkpoint
from drkernel.training.progress import Progress
from drkernel.training.ranks import Ranks
from drkernel.training.rollout_metrics import make_estimator
from drkernel.training.run import Run
from drkernel.training.sampler import Sampler


@dataclass
class State:
    """Where a run stands, besides weights and optimizer: all that the next step depends on."""

    step: int = 0
    cursor: int = 0  # tasks drawn so far
    groups: int = 0  # groups rolled out so far
    skipped: int = 0  # steps without an update
    wandb_id: str | None = None
    metrics_offset: int = 0
    estimator: dict[str, Any] = field(default_factory=dict)  # of an advantage estimator that remembers something


@dataclass
class Trainer:
    """What a run is made of; built once, in train.py's `train`. Only `state` changes, and only between steps."""

    config: Config
    sampler: Sampler
    policy: Policy
    prompts: Prompts
    engine: Engine
    judge: JudgeProtocol
    progress: Progress
    ranks: Ranks = field(default_factory=Ranks)
    state: State = field(default_factory=State)
    should_stop: Callable[[], bool] = lambda: False
    """Whether a signal asks to give up a rollout."""
    estimate_advantages: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = field(init=False)
    """(returns, turn_mask, groups, baseline) -> advantages, as `algo.advantage` says."""

    def __post_init__(self) -> None:
        self.estimate_advantages = make_estimator(self.config.algo)

    @property
    def pass_options(self) -> dict[str, Any]:
        """What every pass of the policy over a batch needs, as arguments of `update.step` and `update.logprobs`."""
        max_tokens, temperature = self.config.trainer.micro_batch_tokens, self.config.engine.temperature
        return {"max_tokens": max_tokens, "temperature": temperature, "ranks": self.ranks}


def log(trainer: Trainer, run: Run | None, metrics: dict[str, float]) -> None:
    """One line of metrics.jsonl, and a shorter one on the console."""
    state = trainer.state
    if run:
        run.log(state.step, metrics | {"tasks_drawn": state.cursor, "skipped_total": state.skipped})
    shown = "  ".join(f"{name} {metrics[name]:.2f}" for name in ("reward", "correct", "fast@1.2", "hacks", "lazy"))
    seconds = sum(value for name, value in metrics.items() if name.startswith("time/"))
    trainer.progress.log(f"step {state.step}/{trainer.config.trainer.steps}  {shown}  ({seconds:.0f} s)")


def save(trainer: Trainer, run: Run | None, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint of the present step. Collective."""
    state, estimator = trainer.state, trainer.estimate_advantages
    if run:
        state.metrics_offset = run.metrics_offset
    if hasattr(estimator, "state_dict"):
        state.estimator = estimator.state_dict()
    folder, keep = checkpoints(trainer.config), trainer.config.trainer.keep
    checkpoint.save(folder, state.step, trainer.policy, optimizer, dataclasses.asdict(state), keep, trainer.ranks)


def resume(trainer: Trainer, run: Run | None, optimizer: torch.optim.Optimizer) -> None:
    """Go on from the newest checkpoint of this run folder, if there is one. Collective."""
    folder = checkpoints(trainer.config)
    saved = checkpoint.load_latest(folder, trainer.policy, optimizer, trainer.ranks, trainer.config.seed)
    if saved:
        trainer.state = State(**saved)
        trainer.progress.log(f"resumed {trainer.config.run_dir} at step {trainer.state.step}")
        if hasattr(trainer.estimate_advantages, "load_state_dict"):
            trainer.estimate_advantages.load_state_dict(trainer.state.estimator)
    if run:
        run.rewind(trainer.state.metrics_offset)
        trainer.state.wandb_id = run.start_wandb(trainer.state.wandb_id)


def checkpoints(config: Config) -> Path:
    return Path(config.run_dir) / "checkpoints"
