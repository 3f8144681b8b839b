"""Before and after on the test split: the rows, the table with intervals, the plots.

Every number is a mean over test tasks of a mean over that task's samples; intervals are 95 % bootstrap intervals over
tasks, paired for the difference, since tasks and sampling seeds are the same on both sides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
from rich.console import Console
from rich.table import Table

from drkernel.types import Trajectory

MEASURES = ("reward", "correct", "fast@1", "fast@1.2", "best fast@1.2", "hacks", "lazy")


def rows(trajectories: list[Trajectory], rewards: list[list[float]]) -> list[dict[str, Any]]:
    """One plain record per turn: what report.json keeps."""
    return [
        {
            "task": trajectory.task_id,
            "sample": trajectory.sample,
            "turn": k,
            "reward": reward,
            "status": turn.verdict.status,
            "reason": turn.verdict.reason,
            "speedup": turn.verdict.speedup,
            "coverage": turn.verdict.coverage,
            "lazy": turn.verdict.lazy,
        }
        for trajectory, values in zip(trajectories, rewards, strict=True)
        for k, (turn, reward) in enumerate(zip(trajectory.turns, values, strict=True))
    ]


def measures(records: list[dict[str, Any]]) -> dict[str, numpy.ndarray]:
    """Per task [tasks], in the order of task ids: reward, correct, fast@1, fast@1.2 of the last turn; the best turn's
    fast@1.2; the share of all turns that are hacks or lazy."""
    episodes: dict[str, dict[int, list[dict]]] = {}
    for record in records:
        episodes.setdefault(record["task"], {}).setdefault(record["sample"], []).append(record)

    def mean(value) -> numpy.ndarray:
        return numpy.array([numpy.mean([value(turns) for turns in episodes[task].values()]) for task in sorted(episodes)])

    def fast(record: dict, p: float) -> bool:
        return record["status"] == "ok" and (record["speedup"] or 0.0) >= p

    return {
        "reward": mean(lambda turns: turns[-1]["reward"]),
        "correct": mean(lambda turns: turns[-1]["status"] == "ok"),
        "fast@1": mean(lambda turns: fast(turns[-1], 1.0)),
        "fast@1.2": mean(lambda turns: fast(turns[-1], 1.2)),
        "best fast@1.2": mean(lambda turns: any(fast(turn, 1.2) for turn in turns)),
        "hacks": mean(lambda turns: numpy.mean([turn["status"] == "hack" for turn in turns])),
        "lazy": mean(lambda turns: numpy.mean([turn["lazy"] for turn in turns])),
    }


def interval(values: numpy.ndarray, resamples: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of the mean of `values` [tasks]; seeded, so the same data give the same interval."""
    picks = numpy.random.default_rng(0).integers(0, len(values), (resamples, len(values)))
    low, high = numpy.percentile(values[picks].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def compare(before: list[dict], after: list[dict]) -> dict[str, dict[str, Any]]:
    """measure -> before, after and difference, each as [mean, low, high]."""
    one, two = measures(before), measures(after)
    sides = {name: {"before": one[name], "after": two[name], "difference": two[name] - one[name]} for name in MEASURES}
    return {n: {side: [float(v.mean()), *interval(v)] for side, v in values.items()} for n, values in sides.items()}


def print_table(comparison: dict[str, dict[str, Any]], title: str, console: Console) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("", "before", "after", "difference"):
        table.add_column(column, justify="left" if not column else "right")
    for name, sides in comparison.items():
        cells = [f"{mean:.3f} [{low:.3f}, {high:.3f}]" for mean, low, high in sides.values()]
        table.add_row(name, *cells)
    console.print(table)


def plot(metrics: list[dict[str, Any]], comparison: dict[str, dict[str, Any]], folder: Path) -> None:
    """plots/training.png: what changed over the steps; plots/before_after.png: the table as bars with intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(exist_ok=True)
    panels = {
        "reward (mean over turns)": ["reward"],
        "share of all answers": ["correct", "fast@1.2"],
        "share of hacks and lazy": ["hacks", "lazy"],
        "speed-up of correct answers": ["speedup"],
        "entropy (nats per token)": ["entropy"],
        "gradient norm": ["grad_norm"],
    }
    figure, axes = pyplot.subplots(2, 3, figsize=(12, 6), constrained_layout=True)
    for axis, (title, names) in zip(axes.flat, panels.items(), strict=True):
        for name in names:
            axis.plot([m["step"] for m in metrics], [m.get(name) for m in metrics], label=name, marker=".")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
        if len(names) > 1:
            axis.legend(fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    figure.savefig(folder / "training.png", dpi=120)
    pyplot.close(figure)

    figure, axis = pyplot.subplots(figsize=(8, 3.5), constrained_layout=True)
    names = list(comparison)
    for offset, side in ((-0.2, "before"), (0.2, "after")):
        values = numpy.array([comparison[name][side] for name in names]).T
        errors = numpy.abs(values[1:] - values[0])
        axis.bar(numpy.arange(len(names)) + offset, values[0], 0.4, yerr=errors, capsize=3, label=side)
    axis.set_xticks(range(len(names)), names, fontsize=9)
    axis.set_title("held-out compositions, last turn, 95 % intervals over tasks", fontsize=10)
    axis.legend()
    figure.savefig(folder / "before_after.png", dpi=120)
    pyplot.close(figure)
