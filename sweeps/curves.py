"""The curves of a sweep: one line per setting, the mean over seeds, with a band from the lowest to the highest seed."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from sweeps.state import RunState, seconds

PANELS = {
    "reward (each setting's own)": ("reward",),
    "Fast@1": ("fast@1",),
    "Fast@1.2": ("fast@1.2",),
    "share of hacks": ("hack",),
    "share of lazy completions": ("lazy",),
    "entropy (nats per token)": ("entropy",),
    "gradient norm": ("grad_norm",),
    "mismatch |Δ log p| (nats per token)": ("mismatch/abs_delta", "engine_gap"),
}
"""Title -> names in metrics.jsonl; the first that all settings have."""


def plot(runs: list[RunState], folder: Path) -> None:
    """steps.png and time.png."""
    started = [run for run in runs if run.metrics]
    for name, axis in (("steps", "step"), ("time", "hours of training")):
        _figure(started, folder / f"{name}.png", axis, against_time=name == "time")


def series(runs: list[RunState], names: tuple[str, ...], against_time: bool) -> dict[str, list[tuple[float, ...]]]:
    """For each setting (x, mean, lowest, highest) at each step that all of its seeds have reached, but for those that
    have stopped, as long as there are others."""
    name = _common(runs, names)
    found: dict[str, list[tuple[float, ...]]] = {}
    for setting in dict.fromkeys(run.setting for run in runs):
        seeds = [_points(run, name, against_time) for run in _going(runs, setting)]
        steps = set.intersection(*(set(points) for points in seeds))
        if steps:
            found[setting] = [_summary([points[step] for points in seeds]) for step in sorted(steps)]
    return found


def _going(runs: list[RunState], setting: str) -> list[RunState]:
    own = [run for run in runs if run.setting == setting]
    return [run for run in own if run.state not in ("failed", "stopped")] or own


def _points(run: RunState, name: str, against_time: bool) -> dict[int, tuple[float, float]]:
    """(x, value) by step."""
    hours = accumulate(seconds(line) / 3600 for line in run.metrics)
    lines = [(line, hour) for line, hour in zip(run.metrics, hours, strict=True) if line.get(name) is not None]
    return {line["step"]: (hour if against_time else line["step"], line[name]) for line, hour in lines}


def _summary(points: list[tuple[float, float]]) -> tuple[float, ...]:
    values = [value for _, value in points]
    return sum(x for x, _ in points) / len(points), sum(values) / len(values), min(values), max(values)


def _common(runs: list[RunState], names: tuple[str, ...]) -> str:
    has = lambda run, name: any(line.get(name) is not None for line in run.metrics)
    return next((name for name in names if all(has(run, name) for run in runs)), names[0])


def _figure(runs: list[RunState], path: Path, axis_name: str, against_time: bool) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = list(dict.fromkeys(run.setting for run in runs))
    colours = {name: pyplot.get_cmap("tab10")(index % 10) for index, name in enumerate(settings)}
    figure, axes = pyplot.subplots(2, 4, figsize=(16, 7), constrained_layout=True)
    for axis, (title, names) in zip(axes.flat, PANELS.items(), strict=True):
        for name, points in series(runs, names, against_time).items():
            x, centre, low, high = zip(*points, strict=True)
            axis.plot(x, centre, label=name, color=colours[name], linewidth=1.5, marker="." if len(x) < 30 else None)
            axis.fill_between(x, low, high, color=colours[name], alpha=0.15, linewidth=0)
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel(axis_name)
    handles = [pyplot.Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)), fontsize=9)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
