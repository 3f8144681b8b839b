"""What a scaling study measures: Fast@p and its companions, of the last and of the best call, at every budget.

The records of one run become a table `Trials`: one row per trial (a task, a repetition), one column per judge call. A
trial that ended early keeps what it had. Every trial counts; intervals are over tasks.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from itertools import compress

import torch
from torch import Tensor

from drkernel.objective.metrics import Estimate, best_of_history, fast_at
from drkernel.scaling.intervals import Paired, best_of, bootstrap, paired, pass_at
from drkernel.scaling.records import Record

THRESHOLDS = (0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
VIEWS = ("best", "last")
AXES = ("calls", "tokens", "seconds")
BASELINES = {"eager": "eager", "eager_tf32": "eager, TF32", "compile": "torch.compile"}


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
    """float64 [B, C], the speed-up over other baselines; NaN where a correct answer has no such figure."""
    turn: Tensor  # int64 [B, C], the place in its chain
    alone: Tensor  # bool [B, C], the prompt held no earlier turn: such answers are independent of each other
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
        """`values` [B, C] after the last call that each budget pays for, [B, P]; 0 or False where it pays for none."""
        paid = torch.searchsorted(self.spent(axis), torch.tensor(budgets).double().repeat(len(values), 1), right=True)
        before = torch.cat([values.new_zeros(len(values), 1), values], dim=1)
        return before.gather(1, paid)

    def comparable(self, baseline: str) -> Trials:
        """What is left with the tasks that have a figure over this baseline for every correct answer."""
        if baseline == "eager":
            return self
        kept = self.per_task(self.over[baseline].isnan().any(1)) == 0
        rows = kept[self.groups]
        known = {name: tuple(compress(getattr(self, name), kept.tolist())) for name in ("tasks", "families", "levels")}
        tables = {name: table[rows] for name, table in vars(self).items() if isinstance(table, Tensor)}
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
    "tokens": lambda record: record.tokens,
    "seconds": lambda record: record.generate_s + record.judge_s,
}


def _speedup_over(record: Record) -> dict[str, float]:
    return record.verdict.evidence.get("speedup_over", {}) if record.verdict.ok else {}


def aligned(runs: Mapping[str, Trials]) -> dict[str, Trials]:
    """The same runs, comparable over other baselines: each baseline is left with the same tasks in all of them.

    A task goes where any run has a correct answer to it without the figure, whether the others solve it or not. A run
    that is right somewhere and has no figure at all was never compared: it goes as a whole.
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


def fast(threshold: float) -> str:
    """The name of a measure.

    >>> fast(1.2)
    'fast@1.2'
    """
    return f"fast@{threshold:g}"


def summary(trials: Trials, budget: float = math.inf, axis: str = "calls") -> dict[str, Estimate]:
    """Every measure of a run, as it stands when the budget is spent.

    correct, fast@p and speedup (geometric mean over correct ones) of the best of history; `last/` the same of the last
    call; `compile/fast@p`, `eager_tf32/fast@p` against other baselines (over tasks that have them for every correct
    answer, see `aligned`); honest and lazy as shares of all calls; cost/calls, cost/tokens, cost/seconds per trial.
    """
    table = {}
    for view in VIEWS:
        prefix = "" if view == "best" else "last/"
        table |= {prefix + name: found for name, found in _view(trials, view, "eager", budget, axis).items()}
    for baseline in trials.over:
        found = _view(trials, "best", baseline, budget, axis)
        table |= {f"{baseline}/{name}": value for name, value in found.items() if name != "correct"}
    return table | _calls(trials, budget, axis)


def _view(trials: Trials, view: str, baseline: str, budget: float, axis: str) -> dict[str, Estimate]:
    trials = trials.comparable(baseline)
    states = (trials.at([budget], axis, values)[:, 0] for values in trials.standing(view, baseline))
    correct, speedup = states
    names = ["correct", *map(fast, THRESHOLDS)]
    columns = torch.stack([correct, *(fast_at(correct, speedup, p) for p in THRESHOLDS)], 1)
    shares = bootstrap(trials.per_task(columns), trials.per_task(torch.ones_like(columns)))
    return dict(zip(names, shares, strict=True)) | {"speedup": geometric_mean(trials, correct, speedup)}


def geometric_mean(trials: Trials, correct: Tensor, speedup: Tensor) -> Estimate:
    """Of the speed-ups [B] of correct answers [B], with its interval over tasks; NaN where nothing is correct."""
    right = correct & (speedup > 0)
    logs = torch.where(right, speedup.log(), 0.0)
    return _exp(bootstrap(trials.per_task(logs)[:, None], trials.per_task(right)[:, None], share=False)[0])


def _exp(found: Estimate) -> Estimate:
    """A geometric mean from the mean of logarithms."""
    return Estimate(*(math.exp(x) for x in (found.value, found.low, found.high)), found.samples)


def _calls(trials: Trials, budget: float, axis: str) -> dict[str, Estimate]:
    paid = trials.exists & (trials.spent(axis) <= budget)
    shares = [(paid & ~trials.hack).sum(1), (paid & trials.lazy).sum(1)]
    number = trials.per_task(paid.sum(1))[:, None]
    found = bootstrap(trials.per_task(torch.stack(shares, 1)), number.expand(-1, 2))
    costs = torch.stack([(paid * each).sum(1) for each in (trials.exists, trials.tokens, trials.seconds)], 1)
    rows = trials.per_task(torch.ones(len(costs)))[:, None].expand(-1, 3)
    means = bootstrap(trials.per_task(costs), rows, share=False)
    return dict(zip(("honest", "lazy"), found, strict=True)) | {
        f"cost/{name}": mean for name, mean in zip(AXES, means, strict=True)
    }


def curve(
    trials: Trials, budgets: Sequence[float], axis: str, threshold: float, view: str = "best", baseline: str = "eager"
) -> list[Estimate]:
    """Fast@threshold after each budget of judge calls, generated tokens or seconds."""
    trials = trials.comparable(baseline)
    correct, speedup = trials.standing(view, baseline)
    hit = trials.per_task(trials.at(budgets, axis, fast_at(correct, speedup, threshold)))
    return bootstrap(hit, trials.per_task(torch.ones(len(correct)))[:, None].expand_as(hit))


def grid(runs: Sequence[Trials], axis: str, points: int = 33) -> list[float]:
    """Budgets to draw curves at: every call, or a geometric ladder, cheapest first call to dearest trial."""
    if axis == "calls":
        return [float(calls) for calls in range(1, max(run.calls for run in runs) + 1)]
    low = max(min(float(run.spent(axis)[:, 0].min()) for run in runs), 1e-3)
    high = max(low, *(run.reach(axis) for run in runs))
    return [*torch.logspace(math.log10(low), math.log10(high), points, dtype=torch.float64).tolist()[:-1], high]


def within(budgets: Sequence[float], reach: float) -> list[float]:
    """The budgets that a run had, its own reach the last; none where nobody counted.

    >>> within([1.0, 10.0, 100.0], 64.0), within([1.0, 10.0], 0.0)
    ([1.0, 10.0, 64.0], [])
    """
    return [*(budget for budget in budgets if budget < reach), reach] if reach > 0 else []


def equal_budgets(runs: Sequence[Trials]) -> list[int]:
    """Equal budgets of judge calls to compare at: the powers of two up to the longest trial, and where a run ends.

    >>> from types import SimpleNamespace as Run
    >>> equal_budgets([Run(calls=9), Run(calls=4), Run(calls=3)])
    [1, 2, 3, 4, 8, 9]
    """
    ends = {run.calls for run in runs}
    return sorted({2**i for i in range(max(ends).bit_length())} | ends)


def ladder(runs: Sequence[Trials], axis: str) -> list[float]:
    """A few equal budgets to compare at, `last_rung` of each run among them: of calls the powers of two, else round
    numbers."""
    if axis == "calls":
        return [float(budget) for budget in equal_budgets(runs)]
    return sorted({*map(rounded_up, grid(runs, axis, points=6)[1:]), *(last_rung(run, axis) for run in runs)} - {0.0})


def last_rung(run: Trials, axis: str) -> float:
    """Where on a ladder a run ends: the first budget that pays for all of it, 0 where nobody counted."""
    reach = run.reach(axis)
    return reach if axis == "calls" or not reach else rounded_up(reach)


def rounded_up(x: float) -> float:
    """To two digits, never to less.

    >>> rounded_up(6449), rounded_up(64000.0), rounded_up(0.0121)
    (6500.0, 64000.0, 0.013)
    """
    return float(Context(prec=2, rounding=ROUND_CEILING).create_decimal(str(x)))


def per_turn(trials: Trials, thresholds: Sequence[float] = THRESHOLDS) -> list[dict[str, Estimate]]:
    """correct and Fast@p of the turns at place 0, 1, ... of their chains, each turn for itself."""
    table = []
    names = ["correct", *map(fast, thresholds)]
    for place in range(int(trials.turn.max()) + 1):
        here = trials.exists & (trials.turn == place)
        hits = [trials.correct, *(fast_at(trials.correct, trials.speedup, p) for p in thresholds)]
        sums = trials.per_task(torch.stack([(hit & here).sum(1) for hit in hits], 1))
        found = bootstrap(sums, trials.per_task(here.sum(1))[:, None].expand_as(sums))
        table.append(dict(zip(names, found, strict=True)))
    return table


def breakdown(trials: Trials, key: Sequence[str | int | None]) -> dict[str | int, dict[str, Estimate]]:
    """correct and Fast@p (best of history) for each value of `key` [tasks], e.g. `trials.levels`; None is left out."""
    correct, speedup = (values[:, -1] for values in trials.standing("best"))
    hits = torch.stack([correct, *(fast_at(correct, speedup, p) for p in THRESHOLDS)], 1)
    sums, numbers = trials.per_task(hits), trials.per_task(torch.ones_like(hits))
    table = {}
    for value in sorted({value for value in key if value is not None}):
        mine = torch.tensor([other == value for other in key])
        found = bootstrap(sums[mine], numbers[mine])
        table[value] = dict(zip(["correct", *map(fast, THRESHOLDS)], found, strict=True))
    return table


def reasons(records: Iterable[Record]) -> Counter[tuple[str, str]]:
    """How often each (status, reason) was said."""
    return Counter((record.verdict.status, record.verdict.reason) for record in records)


def operators(task: str, family: str) -> tuple[str, ...]:
    """The operators of a task: a generated task's id names them in order; of others the family is all that is known.

    >>> operators("generated/normalize+gain/1cbf88cf", "normalize"), operators("kernelbench/level1/19", "level1")
    (('normalize', 'gain'), ('level1',))
    """
    return tuple(task.split("/")[1].split("+")) if task.startswith("generated/") else (family,) if family else ()


def by_operator(trials: Trials) -> dict[str, tuple[float, int]]:
    """Share of trials with a correct answer among the tasks that hold an operator, and how many tasks; worst first."""
    right, number = trials.per_task(trials.correct.any(1)), trials.per_task(torch.ones(len(trials.groups)))
    found: dict[str, list[int]] = {}
    for index, (task, family) in enumerate(zip(trials.tasks, trials.families, strict=True)):
        for name in set(operators(task, family)):
            found.setdefault(name, []).append(index)
    shares = {name: (float(right[at].sum() / number[at].sum()), len(at)) for name, at in found.items()}
    return dict(sorted(shares.items(), key=lambda item: (item[1][0], item[0])))


def common_reach(first: Trials, other: Trials, axis: str) -> float:
    """The largest budget that both runs had; 0 where nobody counted one of them."""
    return min(first.reach(axis), other.reach(axis))


def compare(first: Trials, other: Trials, budget: float, axis: str) -> dict[str, Paired]:
    """other - first at an equal budget (of at most `common_reach`) on the tasks that both have: correct, fast@p, their
    `last/`; speedup is other / first on the tasks that both solve."""
    table = {}
    for view in VIEWS:
        prefix = "" if view == "best" else "last/"
        sides = [_task_means(side, view, budget, axis) for side in (first, other)]
        common = sorted(set(sides[0]) & set(sides[1]))
        if not common:
            continue
        before, after = (torch.stack([side[task] for task in common]) for side in sides)
        names = ["correct", *map(fast, THRESHOLDS), "speedup"]
        for column, name in enumerate(names):
            table[prefix + name] = paired(before[:, column], after[:, column], ratio=name == "speedup")
    return table


def _task_means(trials: Trials, view: str, budget: float, axis: str) -> dict[str, Tensor]:
    """Per task: the shares of correct and Fast@p, and the geometric mean of its correct speed-ups (NaN for none)."""
    correct, speedup = (trials.at([budget], axis, values)[:, 0] for values in trials.standing(view))
    number = trials.per_task(torch.ones(len(correct)))
    hits = [correct, *(fast_at(correct, speedup, p) for p in THRESHOLDS)]
    logs = torch.where(correct & (speedup > 0), speedup.log(), 0.0)
    means = [trials.per_task(hit) / number for hit in hits]
    means.append((trials.per_task(logs) / trials.per_task(correct)).exp())
    return dict(zip(trials.tasks, torch.stack(means, 1), strict=True))


def of_k_samples(trials: Trials, thresholds: Sequence[float] = THRESHOLDS) -> dict[int, dict[str, Estimate]]:
    """What the best of k independent answers would reach, for k = 1, 2, 4, ...: pass@k, fast@p@k, and `speedup`, the
    geometric mean of the best speed-up where one keeps the reference unless an answer is faster.

    Unbiased, from the answers whose prompts held no earlier turn (all of `single` and `parallel`, the first turns of
    other strategies), unless an early stop chose how many there are. Only k that every task has samples for.
    """
    fresh = trials.alone & trials.exists
    tasks = trials.groups[:, None].expand_as(fresh)[fresh]
    samples = [tasks == index for index in range(len(trials.tasks))]
    correct, speedup = trials.correct[fresh], trials.speedup[fresh]
    least = min((int(mine.sum()) for mine in samples), default=0)
    hits = {"pass": correct} | {fast(p): fast_at(correct, speedup, p) for p in thresholds}
    kept = torch.where(correct, speedup, 0.0).clamp(min=1.0).log()
    table = {}
    for k in (2**i for i in range(least.bit_length())):
        rows = [
            [*(pass_at(int(mine.sum()), int(hit[mine].sum()), k) for hit in hits.values()), best_of(kept[mine], k)]
            for mine in samples
        ]
        sums = torch.tensor(rows, dtype=torch.float64)
        shares = bootstrap(sums[:, :-1], torch.ones_like(sums[:, :-1]))
        best = _exp(bootstrap(sums[:, -1:], torch.ones(len(sums), 1), share=False)[0])
        table[k] = dict(zip([*hits, "speedup"], [*shares, best], strict=True))
    return table
