"""Validation before the first step and every few steps: held-out tasks, the same seeds each time, the best checkpoint,
and an early end.

The tasks are of the validation split, so that choosing a checkpoint by them leaves the test split unseen. No step
depends on a validation: with and without it a run trains the same policy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import torch

from drkernel.config import Config
from drkernel.objective.intervals import Estimate
from drkernel.objective.metrics import summary
from drkernel.objective.rollouts import Rollouts, without_judge_failures
from drkernel.rollout import Stopped
from drkernel.training import completions, report
from drkernel.training.build import sync_first_policy
from drkernel.training.rollout_metrics import tabulate_rollouts
from drkernel.training.sharded_rollout import play
from drkernel.training.trainer import State, Trainer, ended_early, save
from drkernel.types import DrKernelError, Task, Trajectory

EVALUATION_SEED = -1
"""The seed of the completions of validations and of the table before and after, in every run; a run's own is 0 or more,
so that they are never those of a rollout that trains."""
TESTED = "tasks.eval_source: {} of the test split"
"""The tasks of the table before and after, which a run also checks before it trains."""


def evaluate(
    trainer: Trainer, tasks: list[Task], title: str, sync: Callable[[], None] | None = None
) -> tuple[Rollouts, list[Trajectory], list[Trajectory]]:
    """Play `tasks` with the policy, or with what `sync` gives the engine, with the same seeds each time.

    Returns a table whose groups are tasks, its rows as trajectories, and all trajectories, those included on which the
    judge failed.

    Hacks count as hacks here, whatever they earn in training, and length costs nothing. Collective.
    Raises Stopped where a signal comes.
    """
    config = trainer.config
    reward = dataclasses.replace(config.reward, hack_check=True, overlong_penalty=0.0)
    trainer = dataclasses.replace(trainer, config=dataclasses.replace(config, reward=reward))
    turns = config.trainer.eval_turns or config.trainer.turns
    sync() if sync else trainer.engine.sync(trainer.policy)
    every, _ = play(
        trainer, tasks, config.trainer.eval_samples, turns, first_group=0, seed=EVALUATION_SEED, title=title
    )
    judged = without_judge_failures(every)
    return tabulate_rollouts(reward, judged), judged, every


def compare(trainer: Trainer, tasks: list[Task]) -> None:
    """Write the table before and after: the policy that the run began with on these tasks, and the present one.
    Collective."""
    config, tables, failures = trainer.config, {}, 0
    sync_first = functools.partial(sync_first_policy, config, trainer.policy, trainer.engine, trainer.ranks)
    for name, sync_policy in (("before", sync_first), ("after", None)):
        tables[name], judged, every = evaluate(trainer, tasks, f"test split, {name}", sync_policy)
        failures += len(every) - len(judged)
    samples, turns = config.trainer.eval_samples, config.trainer.eval_turns or config.trainer.turns
    title = report.title(trainer.sampler.tasks, tasks, samples, turns, failures)
    if run := trainer.run:
        report.write(run, trainer.state.step, **tables, title=title, ended_early=ended_early(trainer))


def usable_tasks(trainer: Trainer, tasks: list[Task], what: str = "") -> list[Task]:
    """Those that judge and policy can use, found before the first step. what: a set other than the validation's.

    Collective. Raises DrKernelError, naming the key that asks for them, where none of several can be used.
    """
    usable = trainer.sampler.usable(tasks)
    if tasks and not usable:
        what = what or f"trainer.validate_every={trainer.config.trainer.validate_every}: {{}} of the validation split"
        found = f"none of {len(tasks)} tasks"
        raise DrKernelError(f"{what.format(found)} can be used, for the reasons given above; expected one")
    return usable


def validate(trainer: Trainer, tasks: list[Task], metrics: dict[str, float]) -> dict[str, float]:
    """The metrics of the step that was taken, with those of a validation where one is due. Moves `State.best` and
    `State.collapsed`. Collective.

    Raises Stopped where a signal ends the validation. The step's metrics are then in `State.pending`, and the resumed
    run validates before it takes another step.
    """
    config, state = trainer.config.trainer, trainer.state
    if not config.validate_every or state.step % config.validate_every:
        state.pending = {}
        return metrics
    state.pending = metrics
    found = _played(trainer, tasks)
    state.pending = {}
    return metrics | found


def begin(
    trainer: Trainer,
    optimizer: torch.optim.Optimizer,
    tasks: list[Task],
    measure: Callable[[], dict[str, float]] = dict,
) -> None:
    """Before the first step: step 0 of the metrics, of the policy that the run begins with. Where `validate_first` asks
    for its validation, it becomes a checkpoint, which may stay the best, and a resumed run does not validate it again.
    Collective.

    measure: what is written besides. A signal ends the validation; the resumed run begins with it.
    """
    config, state = trainer.config.trainer, trainer.state
    if state.step or state.begun:
        return
    with contextlib.suppress(Stopped):
        metrics, validates = measure(), config.validate_first and config.validate_every > 0
        if validates:
            metrics |= _played(trainer, tasks)
        state.begun = True
        if trainer.run and metrics:
            trainer.run.log(0, metrics)
        if validates:
            save(trainer, optimizer)


def _played(trainer: Trainer, tasks: list[Task]) -> dict[str, float]:
    """The metrics of a validation of the present policy. Moves `State.best` and `State.collapsed`."""
    best_by, state, started = trainer.config.trainer.best_by, trainer.state, time.perf_counter()
    table, judged, every = evaluate(trainer, tasks, f"validation, step {state.step}")
    completions.write_validation(trainer, table, judged, every)
    trainer.progress.log(update_best(trainer.config, state, summary(table)[best_by]))
    seconds = time.perf_counter() - started
    return describe(table, best_by, len(every) - len(judged)) | {"time/validation": seconds}


def describe(table: Rollouts, measure: str, failures: int) -> dict[str, float]:
    """The metrics of a validation: measures of the last turn and of the best of the history; `validation/first/*` those
    of a single try; `low` and `high` bound the 95 % interval of the chosen measure."""
    last, first = summary(table), summary(table.first(1))
    single = {name: first[name] for name in first if "/" not in name and name not in ("hack", "lazy")}
    return {
        **{f"validation/{name}": found.value for name, found in last.items()},
        **{f"validation/first/{name}": found.value for name, found in single.items()},
        f"validation/{measure}/low": last[measure].low,
        f"validation/{measure}/high": last[measure].high,
        "validation/judge_failures": failures,
    }


def update_best(config: Config, state: State, found: Estimate) -> str:
    """Compare a validation with the best one so far. Returns a line for the user.

    A best value that was found with another measure, or on other tasks, samples or turns, is forgotten.
    """
    kind: dict[str, Any] = {"measure": config.trainer.best_by} | report.evaluation(config)
    best = state.best if state.best.items() >= kind.items() else {}
    said = f"validation at step {state.step}: {config.trainer.best_by} {found}"
    if not best or found.value > best["value"]:
        if found.samples:
            state.best = kind | {"step": state.step, "value": found.value, "low": found.low, "high": found.high}
        return f"{said}, the best so far"
    said = f"{said}, best {best['value']:.3f} at step {best['step']}"
    share = config.trainer.stop_below
    if share is not None and found.value < share * best["value"]:
        state.collapsed = f"{said}: below trainer.stop_below={share:g} of it"
    return said
