"""Before and after on the test split: the table with paired intervals, the plots, and report.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
from rich.console import Console
from rich.table import Table

from drkernel.config import Config
from drkernel.objective.intervals import Estimate
from drkernel.objective.metrics import difference, summary
from drkernel.objective.rollouts import Rollouts
from drkernel.training import view
from drkernel.training.run import Run
from drkernel.types import Task

SHOWN = ("reward", "correct", "fast@1", "fast@1.2", "best/fast@1.2", "hack", "lazy")
"""The rows of the printed table; report.json has all measures of `objective.metrics.summary`."""


def write(run: Run, step: int, before: Rollouts, after: Rollouts, title: str, ended_early: str = "") -> None:
    """Compare two evaluations of the same tasks and leave report.json and plots/ in the run folder.

    ended_early: why the run took fewer steps than asked for; a sweep then counts it as finished.
    """
    table = {"before": summary(before), "after": summary(after), "difference": difference(before, after)}
    plain = {
        side: {name: dataclasses.asdict(value) for name, value in column.items()} for side, column in table.items()
    }
    about = {"step": step, "title": title, "evaluation": evaluation(run.config)}
    run.write("report.json", about | ({"ended_early": ended_early} if ended_early else {}) | plain)
    if run.config.logger.plots:
        plot(run.metrics(), table, run.path / "plots")


def publish(run: Run) -> None:
    """The page of a run that is over, where the config asks for one."""
    if run.config.logger.page:
        out = run.path / "view.html"
        view.write(run.path, out)
        run.log_file(out, "page")


def evaluation(config: Config) -> dict[str, Any]:
    """What the config says of the table: a run that is complete makes another one where this changes."""
    turns = config.trainer.eval_turns or config.trainer.turns
    return {"tasks": config.tasks.eval_count, "samples": config.trainer.eval_samples, "turns": turns}


def is_current(report: dict[str, Any] | None, step: int, config: Config) -> bool:
    """Whether a report.json, if there is one, is of this step and of the table that the config asks for."""
    wanted = evaluation(config)
    return report is not None and report["step"] == step and report.get("evaluation", wanted) == wanted


def title(trained: Sequence[Task], tested: Sequence[Task], samples: int, turns: int, failures: int) -> str:
    """What was played, and whether training saw it."""
    known = {task.digest for task in trained}
    seen = sum(task.digest in known for task in tested)
    kind = "compositions" if all(task.id.startswith("generated/") for task in tested) else "tasks"
    what = f"{kind} that training never saw" if not seen else f"{seen} of them training tasks"
    left_out = f"; {failures} left out since the judge failed on them" if failures else ""
    return f"{len(tested)} tasks x {samples} samples x {turns} turns, {what}{left_out}"


def show(report: dict[str, Any], console: Console) -> None:
    """Print the table of a report.json."""
    table = Table(title=report["title"], title_justify="left")
    for column in ("last turn", "before", "after", "difference"):
        table.add_column(column, justify="right" if table.columns else "left")
    for name in SHOWN:
        table.add_row(name, *(str(Estimate(**report[side][name])) for side in ("before", "after", "difference")))
    console.print(table)


def plot(metrics: list[dict[str, Any]], table: dict[str, dict[str, Estimate]], folder: Path) -> None:
    """plots/training.png: what changed over the steps; plots/before_after.png: the table as bars with intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(exist_ok=True)
    panels = {
        "reward (mean over turns; validation: last turn)": ["reward", "trained/reward", "validation/reward"],
        "share of all completions": ["correct", "fast@1.2"],
        "share of hacks and lazy": ["hack", "lazy"],
        "speed-up of correct completions": ["speedup"],
        "entropy (nats per token)": ["entropy"],
        "gradient norm": ["grad_norm"],
    }
    figure, axes = pyplot.subplots(2, 3, figsize=(12, 6), constrained_layout=True)
    for axis, (title, names) in zip(axes.flat, panels.items(), strict=True):
        for name in names:
            points = [(m["step"], m[name]) for m in metrics if m.get(name) is not None]
            if points:
                axis.plot(*zip(*points, strict=True), label=name, marker=".")
        axis.set_title(title, fontsize=10)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        if len(names) > 1:
            axis.legend(fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    figure.savefig(folder / "training.png", dpi=120)
    pyplot.close(figure)

    figure, axis = pyplot.subplots(figsize=(8, 3.5), constrained_layout=True)
    for offset, side in ((-0.2, "before"), (0.2, "after")):
        shown = [table[side][name] for name in SHOWN]
        errors = [[e.value - e.low for e in shown], [e.high - e.value for e in shown]]
        axis.bar(numpy.arange(len(shown)) + offset, [e.value for e in shown], 0.4, yerr=errors, capsize=3, label=side)
    axis.set_xticks(range(len(SHOWN)), SHOWN, fontsize=9)
    axis.set_title("test tasks, last turn, 95 % intervals over tasks", fontsize=10)
    axis.legend()
    figure.savefig(folder / "before_after.png", dpi=120)
    pyplot.close(figure)
