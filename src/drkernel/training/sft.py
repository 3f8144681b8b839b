"""`python train.py stage=sft sft.data=...`: supervised training of a policy on trajectories, to be continued by RL.

The run folder is that of any run (training/run.py): metrics.jsonl, checkpoints, best.json, and at the end policy/,
which `policy.path=` takes. `SftConfig` has the options; sft_data.py says what a trajectory is. Ranks, adapters,
activation checkpointing, signals and resumption are those of reinforcement learning.
"""

from __future__ import annotations

import dataclasses
import functools
import shlex
from contextlib import ExitStack, closing
from typing import Any

import torch

from drkernel.config import Config, command_line
from drkernel.config.command_line import typed
from drkernel.policy.prompts import Prompts
from drkernel.rollout import too_long
from drkernel.training import offload, plan, report, sft_data, speed, supervised, validation
from drkernel.training.build import export_policy, load_validation, make_engine, make_policy, make_prompts
from drkernel.training.judging import described, judge_of_node
from drkernel.training.opening import usual_lr
from drkernel.training.optimizers import OPTIMIZERS
from drkernel.training.preemption import Preemption
from drkernel.training.progress import Progress, make_console
from drkernel.training.ranks import Ranks
from drkernel.training.run import Run, opened
from drkernel.training.sampler import Sampler
from drkernel.training.saving import Saver
from drkernel.training.sft_data import Part, Renderer, SftData
from drkernel.training.sft_sources import sources
from drkernel.training.supervised import Epochs
from drkernel.training.timer import Timer
from drkernel.training.trainer import Trainer, folder_line, resume, run_steps, set_up_torch
from drkernel.types import DrKernelError, Task

DATA = "data.json"
"""How many trajectories the run trains on, and their digest."""
COLDSTARTED = {"compact": "seed", "canonical": "seed_8m"}
"""By prompts: the preset (conf/policy/) with which a policy from nothing goes on."""
HELD_OUT = "held_out"
"""The metric: the loss of trajectories that do not train; of several sources `held_out/NAME` besides."""


def train(config: Config, ranks: Ranks) -> None:
    """Build everything, resume, and take steps until the epochs are over or a signal ends the run."""
    set_up_torch(config, ranks)
    source = config.sft.data
    assert source
    ranks.broadcast_object(lambda: sources(source))  # a missing file is found before anything slow
    warning = plan.check(config, ranks)
    console = make_console(quiet=not ranks.is_main)
    with (
        opened(config, ranks) as run,
        Preemption() as preemption,
        Progress(console) as progress,
        ExitStack() as stack,
    ):
        prompts = make_prompts(config, taught=True)
        data = load_data(config, prompts, ranks)
        where = folder_line(config) if config.stage == "sft" else ""  # a cold start has said it
        for line in filter(None, (where, warning, *data.lines())):
            progress.log(line)
        ranks.broadcast_object(lambda: check_data(run, data))
        epochs = epochs_of(config, data)
        policy = make_policy(config, ranks)
        optimizer = OPTIMIZERS[config.sft.optimizer](policy, config.sft.lr, config.trainer.weight_decay)
        optimizer = offload.placed(optimizer, config.trainer.offload)
        players, tasks = make_players(config, policy, prompts, progress, ranks, stack)
        saver = stack.enter_context(Saver(ranks, config.trainer.save_async))
        players |= {"ranks": ranks, "run": run, "saver": saver, "should_stop": preemption.should_stop}
        trainer = Trainer(with_steps(config, epochs), policy=policy, prompts=prompts, **players)
        resume(trainer, optimizer)
        to_validate = validation.usable_tasks(trainer, tasks) if tasks else []
        begin(trainer, optimizer, data, to_validate)
        batches = epochs.batches(after=trainer.state.step)

        def next_step() -> None:
            metrics = trainer.state.pending or step(trainer, optimizer, data, epochs, next(batches))
            log(trainer, validate(trainer, to_validate, metrics))

        if run_steps(trainer, optimizer, preemption, next_step):
            export_policy(config, policy, prompts, ranks)
            if run:
                report.publish(run)
            if not config.policy.lora.rank or config.policy.lora.export_merged:
                progress.log(f"goes on from here: {next_command(config)}")
            progress.log(folder_line(config))
    ranks.close()


def next_command(config: Config) -> str:
    """The command, for a shell, of a reinforcement learning that begins with this run's policy.

    It has the preset that this run chose, or the one whose prompts a policy from nothing was trained on. A chat model
    without a preset of its own has the paper's learning rate, and the lengths that were typed here.
    """
    chosen, said = command_line.variant("policy"), dict(typed())
    own = config.stage == "sft" and "policy.path" in said and "policy" not in said
    if config.stage == "coldstart":
        chosen = COLDSTARTED.get(config.policy.prompts)
    words = [("policy", None if own else chosen), ("policy.path", f"{config.run_dir}/policy")]
    words += [("policy.prompts", config.policy.prompts), ("policy.template", config.policy.template)]
    words += [("policy.thinking", config.policy.thinking)] if config.policy.thinking == "kept" else []
    rate = [f"policy.lr={usual_lr(config):g}"] if own and config.policy.prompts == "chat" else []
    kept = [key for key in said if key.startswith(("engine", "policy.lora.")) or key == "judge.feedback_tokens"]
    as_typed = [*rate, *(shlex.quote(said[key]) for key in kept)]
    written = (command_line.override(key, value) for key, value in words if value)
    return " ".join(["python train.py", *written, *as_typed])


def load_data(config: Config, prompts: Prompts, ranks: Ranks) -> SftData:
    """The rows that `sft.data` holds for this policy. Collective."""
    assert config.sft.data
    longest = plan.longest(config)
    renderer = Renderer(prompts, config.sft, longest, config.judge.feedback_tokens)
    return sft_data.load(config.sft.data, renderer, ranks)


def epochs_of(config: Config, data: SftData) -> Epochs:
    """Which rows each step takes."""
    lengths, parts = [*map(len, data.train)], [(part.train, part.source.weight) for part in data.parts]
    return Epochs(lengths, config.seed, config.sft.epochs, config.sft.batch_size, config.sft.batch_tokens, parts)


def with_steps(config: Config, epochs: Epochs) -> Config:
    """The config with the steps of these epochs in place of reinforcement learning's."""
    steps = min(epochs.steps, config.sft.max_steps or epochs.steps)
    trainer = dataclasses.replace(config.trainer, steps=steps, save_every=config.sft.save_every)
    return dataclasses.replace(config, trainer=trainer)


def make_players(
    config: Config, policy: Any, prompts: Prompts, progress: Progress, ranks: Ranks, stack: ExitStack
) -> tuple[dict[str, Any], list[Task]]:
    """What a validation by generating and judging plays with, as fields of the Trainer, and its tasks. Nothing of these
    where `trainer.validate_every` asks for none. Collective."""
    if not config.trainer.validate_every:
        return {"sampler": None, "engine": None, "judge": None, "progress": progress}, []
    judge = stack.enter_context(judge_of_node(config, ranks))
    engine = stack.enter_context(closing(make_engine(config, policy, prompts, ranks)))
    engine.sleep()
    progress.log(described(config))
    tasks = load_validation(config)
    refuse = functools.partial(too_long, prompts=prompts, room=engine.context - config.engine.max_answer_tokens)
    sampler = Sampler(tasks, config.seed, judge, progress.log, too_long=refuse, ranks=ranks)
    return {"sampler": sampler, "engine": engine, "judge": judge, "progress": progress}, tasks


def begin(trainer: Trainer, optimizer: torch.optim.Optimizer, data: SftData, tasks: list[Task]) -> None:
    """Before the first step: the loss of what is held out, and a validation where one is asked for, as step 0 of the
    metrics. Collective."""

    def measure() -> dict[str, float]:
        before = unseen_loss(trainer, data) if data.held_out else {}
        if before:
            trainer.progress.log(f"before the first step: held out {before[HELD_OUT]:.4f}")
        return before

    validation.begin(trainer, optimizer, tasks, measure)
    if trainer.engine is not None:
        trainer.engine.sleep()


def step(
    trainer: Trainer, optimizer: torch.optim.Optimizer, data: SftData, epochs: Epochs, chosen: list[int]
) -> dict[str, float]:
    """One optimizer step on the chosen rows, and the loss of what is held out where it is due. Moves the state."""
    state, options, timer = trainer.state, trainer.config.sft, Timer()
    rate = options.lr * supervised.schedule(state.step, epochs.steps, options.lr_warmup_share, options.lr_end)
    rows = [data.train[i] for i in chosen]
    limits = trainer.config.trainer
    with timer("time/update"):
        metrics = supervised.step(
            trainer.policy,
            optimizer,
            rows,
            rate,
            max_tokens=limits.micro_batch_tokens,
            max_grad_norm=limits.max_grad_norm,
            ranks=trainer.ranks,
        )
    state.step += 1
    state.skipped += int(metrics["skipped"])
    metrics |= {"lr": rate, "epoch": options.epochs * state.step / epochs.steps}
    sampled, seconds = sum(int(row.trains.sum()) for row in rows), timer.seconds["time/update"]
    metrics |= {"rows": len(rows), "trained_tokens": sampled}
    metrics |= speed.describe(trainer.policy, [*map(len, rows)], sampled, seconds, trainer.ranks.size)
    if data.held_out and (state.step % options.loss_every == 0 or state.step == epochs.steps):
        with timer("time/held_out"):
            metrics |= unseen_loss(trainer, data)
        if not trainer.config.trainer.validate_every:
            keep_best(trainer, metrics[HELD_OUT])
    return metrics | timer.seconds


def unseen_loss(trainer: Trainer, data: SftData) -> dict[str, float]:
    """The loss of what is held out, all of it and by source, whatever the weights are. Collective."""
    limit = trainer.config.trainer.micro_batch_tokens
    found = supervised.logprobs(trainer.policy, data.held_out, limit, trainer.ranks)
    losses, first = {HELD_OUT: supervised.mean_loss(found)}, 0
    for part in data.parts if len(data.parts) > 1 else []:
        own = found[first : (first := first + part.held_out)]
        losses |= {f"{HELD_OUT}/{part.source.name}": supervised.mean_loss(own)} if own else {}
    return losses


def keep_best(trainer: Trainer, value: float) -> None:
    """The step with the lowest loss is the best. Where tasks are played, `trainer.best_by` decides instead."""
    best = trainer.state.best if trainer.state.best.get("measure") == HELD_OUT else {}
    if not best or value < best["value"]:
        trainer.state.best = {"measure": HELD_OUT, "step": trainer.state.step, "value": value}


def validate(trainer: Trainer, tasks: list[Task], metrics: dict[str, float]) -> dict[str, float]:
    """The step's metrics, with those of played tasks where `trainer.validate_every` asks for them. Collective."""
    found = validation.validate(trainer, tasks, metrics)
    if found is not metrics:
        trainer.engine.sleep()
    return found


def log(trainer: Trainer, metrics: dict[str, float]) -> None:
    """One line of metrics.jsonl, and a shorter one on the console."""
    state = trainer.state
    if trainer.run:
        trainer.run.log(state.step, metrics | {"skipped_total": state.skipped})
    unseen = f"  held out {metrics[HELD_OUT]:.4f}" if HELD_OUT in metrics else ""
    seconds = sum(value for name, value in metrics.items() if name.startswith("time/"))
    shown = f"loss {metrics['loss']:.4f}{unseen}  epoch {metrics['epoch']:.2f}  lr {metrics['lr']:.1e}"
    trainer.progress.log(f"step {state.step}/{trainer.config.trainer.steps}  {shown}  ({seconds:.0f} s)")


def check_data(run: Run | None, data: SftData) -> None:
    """Keep a digest of the rows in data.json of the run folder; without one (on other ranks) do nothing.

    Raises DrKernelError where the run began with other rows.
    """
    if run is None:
        return
    now: dict[str, Any] = {"count": len(data.train), "digest": data.digest}
    if data.is_mixed:
        now["sources"] = [describe_part(part) for part in data.parts]
    before = run.read(DATA) or now
    if any(before.get(name) != now.get(name) for name in ("count", "digest", "sources")):
        found, expected = (
            f"{part['count']} with digest {part['digest']}"
            + "".join(f", {each['train']} of {each['name']} x {each['weight']:g}" for each in part.get("sources", []))
            for part in (now, before)
        )
        raise DrKernelError(
            f"{run.path / DATA}: this run trains on other trajectories ({expected}) than {run.config.sft.data} gives "
            f"now ({found}); restore them, choose another name=... or remove the folder"
        )
    run.write(DATA, now | {"held_out": len(data.held_out), "left_out": dict(data.notes)})


def describe_part(part: Part) -> dict[str, Any]:
    """What data.json says of a source."""
    source = part.source
    return {"name": source.name, "weight": source.weight, "train": part.train, "held_out": part.held_out}
