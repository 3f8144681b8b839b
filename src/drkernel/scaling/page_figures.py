"""Every number that the report's page draws, for each choice of tasks that it offers: all, one level, one family.

The page's script measures nothing. It looks up what belongs to the reader's choice of tasks, runs, threshold, view and
baseline, and draws it. An estimate is [value, low, high]; NaN stands for a number that there is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import torch

from drkernel.objective.intervals import Estimate, Paired, bootstrap
from drkernel.objective.metrics import fast_at
from drkernel.scaling import measures
from drkernel.scaling.measures import AXES, THRESHOLDS, VIEWS, fast
from drkernel.scaling.records import Record
from drkernel.scaling.trials import Trials

SPEEDUPS = [0.5 * 16 ** (k / 60) for k in range(61)]
"""Where the distribution of speed-ups is drawn."""
PREFIXES = {"best": "", "last": "last/"}
"""What the names of a view's measures begin with."""
DIGITS = 6
"""Decimals of what is only drawn. What the page shows as text keeps all of them."""


def figures(
    runs: Mapping[str, Trials], records: Mapping[str, Sequence[Record]], baselines: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """{choice of tasks: its figures}; a choice is "" (all tasks), "level=..." or "family=...".

    runs: comparable over other baselines (`trials.aligned`). Where figures are listed by run, runs have this order.
    """
    chosen: dict[str, set[str]] = {"": set()}
    for record in (record for rows in records.values() for record in rows):
        choices = ["", *([f"level={record.level}"] if record.level is not None else [])]
        for choice in [*choices, *([f"family={record.family}"] if record.family else [])]:
            chosen.setdefault(choice, set()).add(record.task)
    reach = [run.reach("calls") for run in runs.values()]
    found = {}
    for choice, tasks in chosen.items():
        some = [run.only(tasks) for run in runs.values()]
        verdicts = [_verdicts([record for record in rows if record.task in tasks]) for rows in records.values()]
        compared = {baseline: _against(some, baseline, reach) for baseline in baselines}
        found[choice] = {"verdicts": verdicts, "operators": _operators(some), "runs": compared}
    return found


def _against(runs: Sequence[Trials], baseline: str, reach: Sequence[float]) -> list[dict[str, Any] | None]:
    """The figures of each run over one baseline; None where no task of the run was compared with it."""
    runs = [run.comparable(baseline) if baseline == "eager" or baseline in run.over else run.only(()) for run in runs]
    there = {number: run for number, run in enumerate(runs) if run.tasks}
    budgets = {axis: measures.grid(list(there.values()), axis) for axis in AXES} if there else {}
    found = {number: _run(run, baseline, budgets) for number, run in there.items()}
    for first, other in combinations(there, 2):
        calls = min(reach[first], reach[other])
        changes = measures.compare(there[first], there[other], calls, "calls", baseline)
        for view, prefix in PREFIXES.items() if changes else ():
            rows = [_paired(changes[prefix + fast(p)], calls) for p in THRESHOLDS]
            found[other][view]["paired"][first] = rows
    return [found.get(number) for number in range(len(runs))]


def _run(run: Trials, baseline: str, budgets: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """`estimates` holds each different estimate of a curve once; `fast` of a curve are places in it."""
    calls = measures.of_calls(run)
    had = {axis: measures.within(budgets[axis], run.reach(axis)) for axis in AXES}
    curves, estimates = _curves(run, baseline, had)
    return {
        "tasks": len(run.tasks),
        "trials": len(run.groups),
        "honest": _estimate(calls["honest"]),
        **{axis: calls[f"cost/{axis}"].value for axis in AXES},
        "turns": _turns(run, baseline),
        "budgets": had,
        "estimates": estimates,
        **{view: _view(run, view, baseline) | {"curves": curves[view], "paired": {}} for view in VIEWS},
    }


def _view(run: Trials, view: str, baseline: str) -> dict[str, Any]:
    summary = measures.of_view(run, view, baseline)
    return {
        **{name: _estimate(summary[name]) for name in ("correct", "speedup")},
        "fast": [_estimate(summary[fast(p)]) for p in THRESHOLDS],
        "distribution": _rounded(measures.speedup_distribution(run, SPEEDUPS, view, baseline)),
        "families": _families(run, view, baseline),
    }


def _curves(
    run: Trials, baseline: str, budgets: Mapping[str, Sequence[float]]
) -> tuple[dict[str, dict[str, list[list[int]]]], list[list[float]]]:
    """By view and axis, for each threshold the places of the estimates at the budgets; and all different estimates.

    They are those of `measures.curve`, each resampled once: neighbours often have the same hits.
    """
    hits = {}
    for view in VIEWS:
        correct, speedup = run.standing(view, baseline)
        fasts = torch.stack([fast_at(correct, speedup, p) for p in THRESHOLDS], 2)  # [B, C, P]
        for axis in AXES:
            hits[view, axis] = run.at(budgets[axis], axis, fasts).transpose(1, 2).flatten(1)
    sums, places = run.per_task(torch.cat(list(hits.values()), 1)).unique(dim=1, return_inverse=True)
    found = bootstrap(sums, run.per_task(torch.ones(len(run.groups)))[:, None].expand_as(sums))
    split = places.split([table.shape[1] for table in hits.values()])
    curves: dict[str, dict[str, list[list[int]]]] = {view: {} for view in VIEWS}
    for (view, axis), own in zip(hits, split, strict=True):
        curves[view][axis] = own.view(len(THRESHOLDS), -1).tolist() if budgets[axis] else [[] for _ in THRESHOLDS]
    return curves, [_rounded(_estimate(each)) for each in found]


def _turns(run: Trials, baseline: str) -> list[list[list[float] | None]]:
    """For each threshold the estimates of the turns at place 0, 1, ... of their chains; None where no chain is as
    long."""
    places = measures.per_turn(run, THRESHOLDS, baseline)
    return [
        [_rounded(_estimate(place[fast(p)])) if place[fast(p)].samples else None for place in places]
        for p in THRESHOLDS
    ]


def _families(run: Trials, view: str, baseline: str) -> dict[str, list[float]]:
    """For each family the share of trials that reach each threshold."""
    correct, speedup = (values[:, -1] for values in run.standing(view, baseline))
    reached = [fast_at(correct, speedup, p) for p in THRESHOLDS]
    names = sorted({family for family in run.families if family})
    inside = {name: torch.tensor([family == name for family in run.families])[run.groups] for name in names}
    return {name: _rounded([hits[mine].double().mean().item() for hits in reached]) for name, mine in inside.items()}


def _verdicts(records: Sequence[Record]) -> dict[str, Any]:
    """How often a run's judge gave each reason: [status, reason, count, share of all completions]."""
    counts = measures.reasons(records)
    rows = [[*said, count, count / counts.total()] for said, count in counts.items()]
    return {"total": counts.total(), "rows": rows}


def _operators(runs: Sequence[Trials]) -> list[list[Any]]:
    """[name, tasks, share of the trials of all runs with a correct completion], worst first."""
    found: dict[str, tuple[set[str], list[int]]] = {}
    for run in runs:
        right, number = run.per_task(run.correct.any(1)), run.per_task(run.exists.any(1))
        for place, (task, family) in enumerate(zip(run.tasks, run.families, strict=True)):
            if task.startswith("generated/"):
                for name in dict.fromkeys(measures.operators(task, family)):
                    tasks, counts = found.setdefault(name, (set(), [0, 0]))
                    tasks.add(task)
                    counts[0] += int(right[place])
                    counts[1] += int(number[place])
    rows = [[name, len(tasks), right / number] for name, (tasks, (right, number)) in found.items()]
    return sorted(rows, key=lambda row: row[2])


def _paired(change: Paired, calls: float) -> list[float]:
    return [change.value, change.low, change.high, calls]


def _estimate(found: Estimate) -> list[float]:
    return [found.value, found.low, found.high]


def _rounded(numbers: Sequence[float]) -> list[float]:
    return [round(number, DIGITS) for number in numbers]
