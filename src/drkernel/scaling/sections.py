"""The sections of a report: what table.md and table.csv hold, one function for each, in the order of SECTIONS."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from drkernel.objective.intervals import Estimate
from drkernel.scaling import criteria, fast_tables, measures
from drkernel.scaling.measures import BASELINES, PUBLISHED_THRESHOLDS, THRESHOLDS, fast
from drkernel.scaling.records import Record
from drkernel.scaling.trials import Trials

FASTS = tuple(fast(p) for p in THRESHOLDS)
PUBLISHED = tuple(fast(p) for p in PUBLISHED_THRESHOLDS)
COSTS = ("cost/calls", "cost/tokens", "cost/seconds")
BUDGETS = {"calls": "judge calls", "tokens": "generated tokens", "seconds": "seconds"}
_BUDGETED = ("fast@1", "fast@1.2", "fast@1.5")
"""What the tables at equal budgets show; table.csv has all thresholds."""

Row = tuple[str, str, dict[str, Any]]
"""(run, key, measures)."""
Section = tuple[str, str, Sequence[str], list[Row]]
"""Heading, what it says, the measures that Markdown shows, and rows."""


@dataclass(frozen=True)
class Runs:
    """What a report is about: the runs of one or more studies by name."""

    trials: dict[str, Trials]
    records: dict[str, list[Record]]
    covered: dict[str, Estimate]
    """How many tasks each run has completions for; `samples` is how many its study has."""

    def rows(self, names: Sequence[str]) -> list[Row]:
        """The totals of each run under these names, as far as it has them."""
        totals = {name: {"tasks": self.covered[name]} | measures.summary(run) for name, run in self.trials.items()}
        return [(run, "", {name: total[name] for name in names if name in total}) for run, total in totals.items()]


def sections(runs: Runs) -> Iterator[Section]:
    """Everything that table.md and table.csv hold of some runs."""
    for section in SECTIONS:
        yield from section(runs)


def totals(runs: Runs) -> Iterator[Section]:
    shown = ("tasks", "correct", *FASTS, "speedup", "roofline", "honest", "lazy", *COSTS)
    note = (
        "Best completion of each trial. Shares are percentages with 95 % intervals over tasks; speed-up is the "
        "geometric mean over correct ones; roofline is the median share of the GPU's limit over all correct "
        "completions; honest and lazy are shares of all completions; costs are per trial."
    )
    yield "Runs", note, shown, runs.rows(shown)


def last_calls(runs: Runs) -> Iterator[Section]:
    last = tuple(f"last/{name}" for name in ("correct", *FASTS, "speedup"))
    yield "Last call", "The last completion of each trial.", last, runs.rows(last)


def against_baselines(runs: Runs) -> Iterator[Section]:
    note = (
        "Best completion of each trial, over the tasks whose correct completions, of this and the other runs, were "
        "all compared with this baseline."
    )
    for baseline in sorted({name for run in runs.trials.values() for name in run.over}):
        names = tuple(f"{baseline}/{name}" for name in (*FASTS, "speedup"))
        yield f"Against {BASELINES.get(baseline, baseline)}", note, names, runs.rows(names)


def published(runs: Runs) -> Iterator[Section]:
    note = (
        "As published: correct and at least p times as fast as the baseline, p = 0 for correct alone. Single tries are "
        "the completions of a bare prompt, as many of each trial as all trials have. Other baselines than eager: over "
        "the tasks that were compared with them."
    )
    rows = [(name, key, row) for name, run in runs.trials.items() for key, row in fast_tables.figures(run)]
    yield "Fast@p", note, PUBLISHED, rows


def two_criteria(runs: Runs) -> Iterator[Section]:
    if rows := list(by_criterion(runs.records)):
        note = "The same turns by this judge and by KernelBench's criterion, over eager."
        yield "Two criteria", note, PUBLISHED, rows
        note = "Turns that one of the two finds right. `speedup` is the largest by the criterion that finds it right."
        yield "Between the criteria", note, ("turns", "speedup"), list(_between(runs.records))


def paired(runs: Runs) -> Iterator[Section]:
    if len(runs.trials) > 1:
        note = (
            "Percentage points on the tasks of both, paired by task, at the largest budget that both had; `speedup` is "
            "the ratio on tasks that both solve."
        )
        names = ("correct", *FASTS, "speedup", *(f"last/{f}" for f in FASTS))
        rows = list(differences(runs.trials, BUDGETS))
        yield f"Paired with {next(iter(runs.trials))} at equal budgets", note, names, rows


def equal_budgets(runs: Runs) -> Iterator[Section]:
    note = "Best completion so far; - beyond what any trial of the run has cost."
    for axis, word in BUDGETS.items():
        rows = list(_at_budgets(runs.trials, axis))
        if any(row for _, _, row in rows):
            yield f"At equal budgets of {word}", note, _BUDGETED, rows


def turn_by_turn(runs: Runs) -> Iterator[Section]:
    places = {name: measures.per_turn(run) for name, run in runs.trials.items()}
    rows = [(name, f"turn {k + 1}", row) for name, table in places.items() for k, row in enumerate(table)]
    yield from _breakdown("Turn by turn", rows)


def by_level(runs: Runs) -> Iterator[Section]:
    yield from _breakdown("By level", _parts(runs, lambda run: run.levels))


def by_family(runs: Runs) -> Iterator[Section]:
    yield from _breakdown("By family", _parts(runs, lambda run: [family or None for family in run.families]))


def best_of_k(runs: Runs) -> Iterator[Section]:
    note = (
        "Unbiased estimates from the completions whose prompts held no earlier turn, as many of each trial as all "
        "trials have; `speedup` is the geometric mean over tasks, and keeps the reference where no completion is "
        "faster."
    )
    found = {name: measures.of_k_samples(run) for name, run in runs.trials.items()}
    rows = [(name, f"k = {k}", row) for name, table in found.items() for k, row in table.items()]
    yield "The best of k independent completions", note, ("pass", *FASTS, "speedup"), rows


def verdicts(runs: Runs) -> Iterator[Section]:
    rows = [
        (name, f"{status}: {reason}", {"share": exact(count / len(records), len(records))})
        for name, records in runs.records.items()
        for (status, reason), count in measures.reasons(records).most_common()
    ]
    yield "Verdicts", "Share of all completions.", ("share",), rows


def operators(runs: Runs) -> Iterator[Section]:
    note = "Share of trials with a correct completion among the tasks that hold the operator."
    rows = [
        (name, part, {"solved": exact(*found)})
        for name, run in runs.trials.items()
        for part, found in measures.by_operator(run).items()
    ]
    yield "Operators", note, ("solved",), rows


SECTIONS: tuple[Callable[[Runs], Iterator[Section]], ...] = (
    *(totals, last_calls, against_baselines, published, two_criteria, paired, equal_budgets),
    *(turn_by_turn, by_level, by_family, best_of_k, verdicts, operators),
)


def by_criterion(records: dict[str, list[Record]]) -> Iterator[Row]:
    """Fast@p by each criterion, of the runs whose verdicts carry both."""
    for name, rows in records.items():
        if criteria.carried(rows):
            seen = {word: Trials.of(criteria.by(key, rows)) for key, word in criteria.NAMES.items()}
            for view, text in fast_tables.VIEWS.items():
                for word, run in seen.items():
                    yield name, f"{word} · {text}", fast_tables.shares(run, view)


def differences(runs: dict[str, Trials], axes: Iterable[str]) -> Iterator[Row]:
    """How the other runs differ from the first, at the largest budget that both had on each axis."""
    first, *others = runs.values()
    for name, other in zip(list(runs)[1:], others, strict=True):
        for axis in axes:
            budget = measures.common_reach(first, other, axis)
            if budget > 0:
                unit = BUDGETS[axis].removesuffix("s" if budget == 1 else "")
                yield name, f"at {amount(budget)} {unit}", measures.compare(first, other, budget, axis)


def exact(share: float, samples: int) -> Estimate:
    """A number without an interval."""
    return Estimate(share, math.nan, math.nan, samples)


def amount(x: float) -> str:
    """A budget or a cost.

    >>> amount(8.0), amount(37.25), amount(6449.0)
    ('8', '37.25', '6449')
    """
    return f"{x:.4g}" if x < 1000 else f"{x:.0f}"


def _between(records: dict[str, list[Record]]) -> Iterator[Row]:
    """What the criteria disagree on."""
    for name, rows in records.items():
        for each in criteria.between(rows):
            row = {"turns": each.times, "speedup": each.speedup}
            yield name, f"{each.task}: {each.text}", {key: exact(x, each.times) for key, x in row.items() if x}


def _at_budgets(runs: dict[str, Trials], axis: str) -> Iterator[Row]:
    budgets = measures.table_budgets(list(runs.values()), axis)
    ends = {name: measures.last_budget(run, axis) for name, run in runs.items()}
    curves = {name: {p: measures.curve(run, budgets, axis, p) for p in THRESHOLDS} for name, run in runs.items()}
    for place, budget in enumerate(budgets):
        for name, found in curves.items():
            had = {fast(p): found[p][place] for p in THRESHOLDS} if budget <= ends[name] else {}
            yield name, amount(budget), had


def _parts(runs: Runs, key: Callable[[Trials], Sequence[Any]]) -> list[Row]:
    found = {name: measures.breakdown(run, key(run)) for name, run in runs.trials.items()}
    return [(name, str(part), row) for name, table in found.items() for part, row in table.items()]


def _breakdown(heading: str, rows: list[Row]) -> Iterator[Section]:
    """A section without a note, where it has rows."""
    if rows:
        yield heading, "", ("correct", *FASTS, "roofline"), rows
