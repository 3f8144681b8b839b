"""The pictures of a report, for papers and slides; the page draws its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from drkernel.scaling import measures
from drkernel.scaling.records import Record
from drkernel.scaling.trials import Trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#2f6db0", "#c2583c", "#3c8a66", "#84599f", "#b58a1f", "#3f8b9c", "#b04f79", "#6c7079")
"""The page's, in its order."""
WORDS = {"calls": "judge calls per task", "tokens": "generated tokens per task", "seconds": "seconds per task"}
_PANELS = (1.0, 1.2, 1.5, 2.0)


def draw(runs: Mapping[str, Trials], records: Mapping[str, Sequence[Record]], folder: Path) -> None:
    """fast_calls.png, fast_tokens.png, fast_seconds.png, speedups.png, families.png and failures.png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(
        {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9, "axes.titlesize": 10}
    ):
        for axis in WORDS:
            _save(_curves(pyplot, runs, axis), folder / f"fast_{axis}.png")
        _save(_speedups(pyplot, runs), folder / "speedups.png")
        _save(_families(pyplot, runs), folder / "families.png")
        _save(_failures(pyplot, runs, records), folder / "failures.png")


def _save(figure: Figure, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _curves(pyplot: Any, runs: Mapping[str, Trials], axis: str) -> Figure:
    """Fast@p against a budget, the best completion so far; a run's curve ends with its most expensive trial."""
    figure, panels = pyplot.subplots(2, 2, figsize=(9, 6.2), sharex=True, constrained_layout=True)
    points = measures.grid(list(runs.values()), axis)
    for panel, p in zip(panels.flat, _PANELS, strict=True):
        for index, (name, run) in enumerate(runs.items()):
            mine = measures.within(points, run.reach(axis))
            found = measures.curve(run, mine, axis, p)
            dots = "." if axis == "calls" or len(mine) == 1 else None
            style = {"color": _colour(index), "label": name, "marker": dots}
            panel.plot(mine, [100 * e.value for e in found], **style)
            panel.fill_between(
                mine,
                *([100 * getattr(e, s) for e in found] for s in ("low", "high")),
                alpha=0.12,
                color=_colour(index),
                lw=0,
            )
        panel.set_title(f"Fast@{p:g} (%)", loc="left")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.25)
        if axis != "calls" or points[-1] > 8:
            panel.set_xscale("log", base=2 if axis == "calls" else 10)
        round_numbers = (
            [2**k for k in range(20)] if axis == "calls" else [m * 10**k for k in range(-3, 9) for m in (1, 2, 5)]
        )
        ticks = [tick for tick in round_numbers if points[0] <= tick <= points[-1]]
        panel.set_xticks(ticks, [f"{tick:g}" if tick < 10_000 else f"{tick / 1000:g}k" for tick in ticks])
        panel.minorticks_off()
    for panel in panels[-1]:
        panel.set_xlabel(WORDS[axis])
    if len(runs) > 1:
        panels[0, 0].legend(fontsize=8, frameon=False)
    return figure


def _speedups(pyplot: Any, runs: Mapping[str, Trials]) -> Figure:
    """For every p the share of trials whose best completion is correct and p times as fast."""
    figure, panel = pyplot.subplots(figsize=(6.5, 4), constrained_layout=True)
    ps = numpy.geomspace(0.5, 8, 121).tolist()
    for index, (name, run) in enumerate(runs.items()):
        reached = measures.speedup_distribution(run, ps)
        panel.plot(ps, [100 * share for share in reached], color=_colour(index), label=name)
    panel.set_xscale("log")
    panel.set_xticks([0.5, 0.8, 1, 1.2, 1.5, 2, 3, 5, 8], ["0.5", "0.8", "1", "1.2", "1.5", "2", "3", "5", "8"])
    panel.minorticks_off()
    panel.axvline(1, color="#999", lw=0.8, ls=":")
    panel.set(xlabel="speed-up p", ylim=(0, None))
    panel.set_title("Fast@p (%), best completion of each trial", loc="left")
    panel.grid(alpha=0.25)
    panel.legend(fontsize=8, frameon=False)
    return figure


def _families(pyplot: Any, runs: Mapping[str, Trials]) -> Figure:
    """Fast@1.2 of each family and run as a heat map."""
    tables = [measures.breakdown(run, [family or None for family in run.families]) for run in runs.values()]
    names = sorted({str(name) for table in tables for name in table})
    shares = [[100 * t[name]["fast@1.2"].value if name in t else numpy.nan for t in tables] for name in names]
    size = (3 + 0.95 * len(runs), 1.5 + 0.27 * max(len(names), 1))
    figure, panel = pyplot.subplots(figsize=size, constrained_layout=True)
    panel.set_title("Fast@1.2 (%) by family", loc="left")
    if names:
        panel.imshow(shares, cmap="Blues", vmin=0, vmax=115, aspect="auto")
        for (y, x), share in numpy.ndenumerate(numpy.array(shares)):
            if share == share:
                panel.text(x, y, f"{share:.0f}", ha="center", va="center", color="white" if share > 60 else "black")
    panel.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    panel.set_xticks(range(len(runs)), list(runs), rotation=20, ha="right")
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    return figure


def _failures(
    pyplot: Any, runs: Mapping[str, Trials], records: Mapping[str, Sequence[Record]], most: int = 14
) -> Figure:
    """What the verdicts say of completions that are not correct, and the operators that are solved least."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.6), constrained_layout=True)
    counts = {name: measures.reasons(rows) for name, rows in records.items()}
    shares = {name: {said: n / count.total() for said, n in count.items()} for name, count in counts.items()}
    said = {reason for count in counts.values() for reason in count if reason[0] != "ok"}
    order = sorted(said, key=lambda reason: max(share.get(reason, 0) for share in shares.values()))[-most:]
    thick = 0.8 / len(runs)
    for index, (name, share) in enumerate(shares.items()):
        places = numpy.arange(len(order)) + 0.4 - thick * (index + 0.5)
        left.barh(places, [100 * share.get(reason, 0) for reason in order], thick, color=_colour(index), label=name)
    left.set_yticks(range(len(order)), [f"{status}: {reason}".replace("_", " ") for status, reason in order])
    left.set_title("Verdicts other than correct (% of all completions)", loc="left")
    if len(runs) > 1:
        left.legend(fontsize=8, frameon=False)
    found: dict[str, list[float]] = {}
    for run in runs.values():
        for name, (solved, _) in measures.by_operator(run).items():
            found.setdefault(name, []).append(solved)
    hardest = sorted(found, key=lambda name: sum(found[name]) / len(found[name]))[:most][::-1]
    right.barh(range(len(hardest)), [100 * sum(found[n]) / len(found[n]) for n in hardest], 0.6, color="#6c7f93")
    right.set_yticks(range(len(hardest)), [name.replace("_", " ") for name in hardest])
    right.set_title("Operators solved least (% of trials, mean over runs)", loc="left")
    right.set_xlim(0, 100)
    return figure
