"""The judge calls of one run as a table, `Trials`: one row per trial (a task, a repetition), one column per judge call.

A trial that ended early keeps what it had.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from drkernel.objective.metrics import best_of_history
from drkernel.scaling.records import Record


@dataclass(frozen=True)
class Trials:
    """The judge calls of one run: B trials, at most C calls each. Where `exists` is False all else is 0 or False."""

    tasks: tuple[str, ...]
    """Sorted ids."""
    families: tuple[str, ...]
    """Of each task."""
    levels: tuple[int | None, ...]
    groups: Tensor  # int64 [B], the trial's task
    exists: Tensor  # bool [B, C], always a prefix of the row
    correct: Tensor  # bool [B, C], right and honest
    hack: Tensor  # bool [B, C]
    lazy: Tensor  # bool [B, C]
    speedup: Tensor  # float64 [B, C]
    over: dict[str, Tensor]
    """float64 [B, C], the speed-up over other baselines; NaN where a correct completion has no such figure."""
    turn: Tensor  # int64 [B, C], the place in its chain
    alone: Tensor
    """bool [B, C], completions whose prompts held no earlier turn: they are independent of each other. Of each trial
    the first ones, as many as all trials have: how many more an early stop leaves depends on what they are."""
    roofline: Tensor  # float64 [B, C], the share of the GPU's limit; NaN where none is known or it is not correct
    tokens: Tensor  # float64 [B, C], sampled
    seconds: Tensor  # float64 [B, C], generating and judging

    @classmethod
    def of(cls, records: Iterable[Record]) -> Trials:
        """The table of one run's records; calls are laid out in their order."""
        known: dict[str, Record] = {}
        rows: dict[tuple[str, int], list[Record]] = {}
        for record in sorted(records, key=lambda record: (record.task, record.trial, record.call)):
            known.setdefault(record.task, record)
            rows.setdefault((record.task, record.trial), []).append(record)
        place = {task: index for index, task in enumerate(known)}
        width = max((len(row) for row in rows.values()), default=0)
        flags = {name: torch.zeros(len(rows), width, dtype=torch.bool) for name in ("exists", *_FLAGS)}
        numbers = {name: torch.zeros(len(rows), width, dtype=torch.float64) for name in _NUMBERS}
        others = {name for row in rows.values() for record in row for name in _speedup_over(record)}
        over = {name: torch.zeros(len(rows), width, dtype=torch.float64) for name in sorted(others)}
        turn = torch.zeros(len(rows), width, dtype=torch.int64)
        for b, row in enumerate(rows.values()):
            flags["exists"][b, : len(row)] = True
            turn[b, : len(row)] = torch.tensor([record.turn for record in row])
            for name, read in _FLAGS.items():
                flags[name][b, : len(row)] = torch.tensor([bool(read(record)) for record in row])
            for name, read in _NUMBERS.items():
                numbers[name][b, : len(row)] = torch.tensor([float(read(record)) for record in row])
            for name, values in over.items():
                missing = [math.nan if record.verdict.ok else 0.0 for record in row]
                found = [_speedup_over(record).get(name, none) for record, none in zip(row, missing, strict=True)]
                values[b, : len(row)] = torch.tensor(found)
        bare = flags["alone"].cumsum(1)
        if rows:
            flags["alone"] &= bare <= bare[:, -1].min().clamp(min=1)
        families = tuple(record.family for record in known.values())
        levels = tuple(record.level for record in known.values())
        groups = torch.tensor([place[task] for task, _ in rows], dtype=torch.int64)
        return cls(tuple(known), families, levels, groups, over=over, turn=turn, **flags, **numbers)

    @property
    def calls(self) -> int:
        """The most judge calls of a trial."""
        return self.exists.shape[1]

    def spent(self, axis: str) -> Tensor:
        """What a trial has cost after each call, float64 [B, C]: calls, tokens or seconds; inf where none is."""
        each = {"calls": self.exists.double(), "tokens": self.tokens, "seconds": self.seconds}[axis]
        return torch.where(self.exists, each.cumsum(1), math.inf)

    def reach(self, axis: str) -> float:
        """The most that a trial has cost: calls, tokens or seconds; 0 where nobody counted."""
        spent = self.spent(axis)
        return float(spent[spent.isfinite()].max())

    def standing(self, view: str, baseline: str = "eager") -> tuple[Tensor, Tensor]:
        """(correct, speed-up) that a trial stands at after each call, [B, C]: its `best` so far, or its `last`."""
        speedup = self.speedup if baseline == "eager" else self.over[baseline]
        if view == "best":
            return best_of_history(self.correct, speedup)
        last = (torch.arange(self.calls) * self.exists).cummax(1).values
        return self.correct.gather(1, last), speedup.gather(1, last)

    def at(self, budgets: Sequence[float], axis: str, values: Tensor) -> Tensor:
        """`values` [B, C, ...] after the last call that each budget covers, [B, P, ...]; 0 or False where it covers
        none."""
        covered = torch.searchsorted(
            self.spent(axis), torch.tensor(budgets).double().repeat(len(values), 1), right=True
        )
        before = torch.cat([values.new_zeros(len(values), 1, *values.shape[2:]), values], dim=1)
        return before[torch.arange(len(values))[:, None], covered]

    def comparable(self, baseline: str) -> Trials:
        """What is left with the tasks that have a figure over this baseline for every correct completion."""
        if baseline == "eager":
            return self
        return self._only(self.per_task(self.over[baseline].isnan().any(1)) == 0)

    def only(self, tasks: Collection[str]) -> Trials:
        """What is left with those of its tasks whose ids are among `tasks`."""
        return self._only(torch.tensor([task in tasks for task in self.tasks], dtype=torch.bool))

    def _only(self, kept: Tensor) -> Trials:
        """What is left with some tasks, bool [tasks]."""
        rows = kept[self.groups]
        known: dict[str, Any] = {
            name: tuple(compress(getattr(self, name), kept.tolist())) for name in ("tasks", "families", "levels")
        }
        tables: dict[str, Any] = {name: table[rows] for name, table in vars(self).items() if isinstance(table, Tensor)}
        tables["groups"] = (kept.cumsum(0) - 1)[tables["groups"]]
        over = {name: values[rows] for name, values in self.over.items()}
        return dataclasses.replace(self, over=over, **known, **tables)

    def per_task(self, values: Tensor) -> Tensor:
        """The sums of `values` [B, ...] over each task's trials, float64 [tasks, ...]."""
        sums = torch.zeros(len(self.tasks), *values.shape[1:], dtype=torch.float64)
        return sums.index_add_(0, self.groups, values.double())


_FLAGS = {
    "correct": lambda record: record.verdict.ok,
    "hack": lambda record: record.verdict.status == "hack",
    "lazy": lambda record: record.verdict.lazy,
    "alone": lambda record: not record.shown,
}
_NUMBERS = {
    "speedup": lambda record: record.verdict.speedup or 0.0,
    "roofline": lambda record: _roofline(record),
    "tokens": lambda record: record.tokens,
    "seconds": lambda record: record.generate_s + record.judge_s,
}


def _roofline(record: Record) -> float:
    share = record.verdict.evidence.get("roofline", {}).get("share") if record.verdict.ok else None
    return math.nan if share is None else share


def _speedup_over(record: Record) -> dict[str, float]:
    return record.verdict.evidence.get("speedup_over", {}) if record.verdict.ok else {}


def aligned(runs: Mapping[str, Trials]) -> dict[str, Trials]:
    """The same runs, comparable over other baselines: each baseline is left with the same tasks in all of them.

    A task goes where any run has a correct completion for it without the figure, whether the others solve it or not. A
    run that is right somewhere and has no figure at all was never compared: it goes as a whole.
    """
    over: dict[str, dict[str, Tensor]] = {name: {} for name in runs}
    for baseline in sorted({name for run in runs.values() for name in run.over}):
        sides = {name: run for name, run in runs.items() if baseline in run.over or not run.correct.any()}
        figures = {name: run.over.get(baseline, torch.zeros_like(run.speedup)) for name, run in sides.items()}
        lacking = {
            run.tasks[task] for name, run in sides.items() for task in run.groups[figures[name].isnan().any(1)].tolist()
        }
        for name, run in sides.items():
            gone = torch.tensor([task in lacking for task in run.tasks])[run.groups]
            over[name][baseline] = torch.where(gone[:, None], math.nan, figures[name])
    return {name: dataclasses.replace(run, over=over[name]) for name, run in runs.items()}
