"""What a training run is made of, where it stands, and how both are kept."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
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
from drkernel.rollout import Stopped
from drkernel.slurm.guard import SAVED
from drkernel.training import checkpoint, rejections
from drkernel.training.preemption import Preemption
from drkernel.training.progress import Progress
from drkernel.training.ranks import Ranks
from drkernel.training.rollout_metrics import make_estimator
from drkernel.training.run import BEST, Run
from drkernel.training.sampler import Sampler
from drkernel.training.saving import Saver
from drkernel.training.seeds import seed_rng

THREADS_BESIDE_GPU = 4
"""CPU threads of a rank that trains on a GPU: what they compute is small, and more of them wait for each other."""


@dataclass
class State:
    """Where a run stands, besides weights and optimizer: all that the next step depends on."""

    step: int = 0
    cursor: int = 0  # tasks drawn so far
    groups: int = 0  # groups rolled out so far
    skipped: int = 0  # steps without an update
    idle: int = 0  # steps in a row, up to the present one, that made no update
    wandb_id: str | None = None
    metrics_offset: int = 0
    estimator: dict[str, Any] = field(default_factory=dict)  # of an advantage estimator that remembers something
    best: dict[str, Any] = field(default_factory=dict)  # the best validation so far: step, value, and of what
    begun: bool = False  # whether step 0 has its line of metrics, and its validation
    collapsed: str = ""  # why the run ends early (trainer.stop_below)
    ahead: dict[str, Any] = field(default_factory=dict)  # what is begun of the next step (trainer.overlap)
    pending: dict[str, float] = field(default_factory=dict)
    """Metrics of the present step if a signal ended its validation; the resumed run validates first."""


@dataclass
class Trainer:
    """What a run is made of. `state` alone changes: at the end of a step, and by its validation."""

    config: Config
    sampler: Sampler
    policy: Policy
    prompts: Prompts
    engine: Engine
    judge: JudgeProtocol
    progress: Progress
    ranks: Ranks = field(default_factory=Ranks)
    state: State = field(default_factory=State)
    reference: Policy | None = None
    """The policy that the run began with, where `algo.kl_coef` asks for it."""
    run: Run | None = None
    """The run folder; rank 0 alone has it."""
    saver: Saver = field(default_factory=Saver)
    """What writes checkpoints."""
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


def set_up_torch(config: Config, ranks: Ranks) -> None:
    """Threads and random states of a rank. Each rank draws numbers of its own from the start, as after a resumption on
    another number of ranks; what ranks must agree on is drawn from generators of its own."""
    available = torch.get_num_threads()
    most = THREADS_BESIDE_GPU if ranks.device.type == "cuda" else available
    torch.set_num_threads(config.trainer.threads or min(most, available))
    seed_rng(config.seed, 0, ranks.rank)


def log(trainer: Trainer, metrics: dict[str, float]) -> None:
    """One line of metrics.jsonl, and a shorter one on the console; more where the step made no update."""
    state = trainer.state
    state.idle = state.idle + 1 if rejections.made_no_update(metrics) else 0
    if trainer.run:
        trainer.run.log(state.step, metrics | {"tasks_drawn": state.cursor, "skipped_total": state.skipped})
    shown = "  ".join(f"{name} {metrics[name]:.2f}" for name in ("reward", "correct", "fast@1.2", "hack", "lazy"))
    seconds = sum(value for name, value in metrics.items() if name.startswith("time/"))
    trainer.progress.log(
        f"step {state.step}/{trainer.config.trainer.steps}  {shown}{rejections.kept(metrics)}  ({seconds:.0f} s)"
    )
    for line in rejections.lines(trainer.config, state.step, metrics, state.idle):
        trainer.progress.log(line)


def folder_line(config: Config) -> str:
    """The first and the last line of a run."""
    return f"run folder: {config.run_dir}"


def ended_early(trainer: Trainer) -> str:
    """Why the run takes no more steps though there are some left, or nothing."""
    return trainer.state.collapsed if trainer.config.trainer.stop_below is not None else ""


def steps_to_take(trainer: Trainer) -> Iterator[int]:
    """Count the steps that are left, moving the progress bar, until all are taken or the run ends early. The present
    step is among them where it still waits for its validation."""
    state = trainer.state
    for number in trainer.progress.steps(state.step - bool(state.pending), trainer.config.trainer.steps):
        if why := ended_early(trainer):
            trainer.progress.log(f"ended early: {why}")
            return
        yield number


def run_steps(
    trainer: Trainer, optimizer: torch.optim.Optimizer, preemption: Preemption, next_step: Callable[[], None]
) -> bool:
    """Call `next_step`, which takes a step, validates and logs, until the run is complete or a signal ends it, and save
    where that is due. Returns whether it is complete. Collective.

    `next_step` may raise Stopped: then the state is that of the last whole step, or has one to validate.
    """
    ranks, stop = trainer.ranks, False
    for _ in steps_to_take(trainer):
        with contextlib.suppress(Stopped):
            next_step()
        stop = preemption.agreed(ranks)
        if stop or should_save(trainer):
            save(trainer, optimizer)
        if stop:
            break
    stop = stop or preemption.agreed(ranks)
    trainer.saver.wait()
    if stop:
        trainer.progress.log(f"{SAVED} {trainer.state.step}; the same command goes on")
        preemption.call_previous_handler(ranks)
        return False
    preemption.release()  # everything is saved: a signal may now end the process at once
    return True


def should_save(trainer: Trainer) -> bool:
    """Whether the present step becomes a checkpoint: every few steps, the last one, the best one so far, and those to
    keep for ever."""
    step, config = trainer.state.step, trainer.config.trainer
    if config.keep_every and step % config.keep_every == 0:
        return True
    is_last = step == config.steps or bool(ended_early(trainer))
    return is_last or step % config.save_every == 0 or step == trainer.state.best.get("step")


def save(trainer: Trainer, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint of the present step, and say in best.json which one is the best. Collective.

    With `trainer.save_async` it is written behind the steps that follow; `trainer.saver.wait()` waits for it.
    """
    run, state, estimator = trainer.run, trainer.state, trainer.estimate_advantages
    if run:
        state.metrics_offset = run.metrics_offset
    if hasattr(estimator, "state_dict"):
        state.estimator = estimator.state_dict()
    folder, best, options = checkpoints(trainer.config), state.best.get("step"), trainer.config.trainer
    keep = checkpoint.Keep(options.keep, best, options.keep_every)
    why = {"ended_early": ended_early(trainer)} if ended_early(trainer) else {}
    named = best is not None and {"checkpoint": f"{folder.name}/{checkpoint.name_of(best)}", **state.best, **why}
    trainer.saver.wait()
    snapshot = checkpoint.take(state.step, trainer.policy, optimizer, dataclasses.asdict(state), trainer.ranks)
    snapshot = snapshot.copied() if trainer.saver.in_background else snapshot

    def name_best() -> None:
        if run and named:
            run.write(BEST, named)

    def write(ranks: Ranks) -> None:
        checkpoint.write(folder, snapshot, keep, ranks)
        ranks.broadcast_object(name_best)  # where it fails, it fails on all ranks

    trainer.saver.run(write)


def resume(trainer: Trainer, optimizer: torch.optim.Optimizer) -> None:
    """Go on from the newest checkpoint of this run folder, if there is one. Collective."""
    folder = checkpoints(trainer.config)
    saved = checkpoint.load_latest(folder, trainer.policy, optimizer, trainer.ranks, trainer.config.seed)
    if saved:
        trainer.state = State(**saved)
        trainer.progress.log(f"resumed {trainer.config.run_dir} at step {trainer.state.step}")
        if trainer.state.step > (steps := trainer.config.trainer.steps):
            trainer.progress.log(f"trainer.steps={steps}: the run is at step {trainer.state.step}, so no step is taken")
        if hasattr(trainer.estimate_advantages, "load_state_dict"):
            trainer.estimate_advantages.load_state_dict(trainer.state.estimator)
    if trainer.run:
        trainer.run.rewind(trainer.state.metrics_offset, trainer.state.step)
        trainer.state.wandb_id = trainer.run.start_wandb(trainer.state.wandb_id)


def checkpoints(config: Config) -> Path:
    return Path(config.run_dir) / "checkpoints"
