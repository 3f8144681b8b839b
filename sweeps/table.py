"""The table of a sweep: every measure on held-out tasks after training, as mean and 95 % interval over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev

from drkernel.types import DrKernelError
from sweeps.state import RunState

COLUMNS = {
    "reward": "reward",
    "correct": "correct",
    "fast@1": "Fast@1",
    "fast@1.2": "Fast@1.2",
    "best/fast@1.2": "Fast@1.2, best turn",
    "hack": "hacks",
    "lazy": "lazy",
}
T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Student's t for 97.5 %, by degrees of freedom from 1 on; beyond the table 2.0 is close."""


def markdown(runs: list[RunState], baseline: str | None = None) -> str:
    """Two tables: each setting, and its difference from the baseline, paired by seed.

    The reward is left out where the settings are not rewarded alike. Raises DrKernelError for an unknown baseline.
    """
    settings = list(dict.fromkeys(run.setting for run in runs))
    done = {(run.setting, run.seed): run.report["after"] for run in runs if run.state == "done" and run.report}
    if not done and any(run.state == "done" for run in runs):
        return "No training run is done. `python evaluate.py compare=[FOLDER,...]` compares studies."
    if not done:
        return "No run is done yet."
    if baseline and baseline not in settings:
        raise DrKernelError(f"--baseline: found {baseline!r}, expected one of: {'; '.join(settings)}")
    base = baseline or settings[0]
    rewards = [run.reward for run in runs if run.reward]
    columns = {k: name for k, name in COLUMNS.items() if k != "reward" or all(r == rewards[0] for r in rewards)}
    heads = ["setting", "seeds", *columns.values()]
    values, changes = [], []
    for setting in settings:
        own = {seed: report for (name, seed), report in done.items() if name == setting}
        total = sum(run.setting == setting for run in runs)
        number = f"{len(own)}" if len(own) == total else f"{len(own)} of {total}"
        values.append([setting, number, *(_cell(own, key) for key in columns)])
        pairs = {seed: (own[seed], done[base, seed]) for seed in own if (base, seed) in done}
        if setting != base and pairs:
            changes.append([setting, str(len(pairs)), *(_change(pairs, key) for key in columns)])
    text = "Held-out tasks after training; last turn, but hacks and lazy completions over all turns; mean and 95 % "
    text += "interval over seeds (one seed: over tasks).\n\n"
    text += _table(heads, values)
    if changes:
        text += f"\n\nDifference from {base}, paired by seed.\n\n" + _table(heads, changes)
    return text


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half the width of its 95 % interval (Student's t); NaN for a single value.

    >>> centre, half = interval([0.1, 0.2, 0.3])
    >>> round(centre, 3), round(half, 3)
    (0.2, 0.248)
    """
    if len(values) < 2:
        return mean(values), math.nan
    t = T95[len(values) - 2] if len(values) - 2 < len(T95) else 2.0
    return mean(values), t * stdev(values) / math.sqrt(len(values))


def _cell(own: dict[str, dict], key: str) -> str:
    found = [report[key] for report in own.values() if key in report]
    if not found:
        return ""
    if len(found) == 1:
        return f"{found[0]['value']:.3f} [{found[0]['low']:.3f}, {found[0]['high']:.3f}]"
    centre, half = interval([estimate["value"] for estimate in found])
    return f"{centre:.3f} ± {half:.3f}"


def _change(pairs: dict[str, tuple[dict, dict]], key: str) -> str:
    values = [own[key]["value"] - other[key]["value"] for own, other in pairs.values() if key in own and key in other]
    if not values:
        return ""
    centre, half = interval(values)
    return f"{centre:+.3f}" if math.isnan(half) else f"{centre:+.3f} ± {half:.3f}"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
