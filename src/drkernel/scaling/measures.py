"""What a scaling study measures: Fast@p and its companions, of the last and of the best call, at every budget.

Every trial counts; intervals are over tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Context

import torch
from torch import Tensor

from drkernel.objective.intervals import Estimate, Paired, best_of, bootstrap, paired, pass_at
from drkernel.objective.metrics import fast_at
from drkernel.scaling.records import Record
from drkernel.scaling.trials import Trials

THRESHOLDS = (0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
"""Of curves, comparisons and the page."""
PUBLISHED_THRESHOLDS = (0.0, 1.0, 1.2, 1.5, 2.0)
"""Of the figures that others publish: KernelBench's fast_0 is the share of correct ones; fast_tables has the tables."""
VIEWS = ("best", "last")
AXES = ("calls", "tokens", "seconds")
BASELINES = {"eager": "eager", "eager_tf32": "eager, TF32", "compile": "torch.compile"}


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
    completion, see `aligned`); honest and lazy as shares of all calls; roofline, see there; cost/calls, cost/tokens,
    cost/seconds per trial.
    """
    table: dict[str, Estimate] = {}
    for view in VIEWS:
        prefix = "" if view == "best" else "last/"
        table |= {prefix + name: found for name, found in of_view(trials, view, "eager", budget, axis).items()}
    for baseline in trials.over:
        found = of_view(trials, "best", baseline, budget, axis)
        table |= {f"{baseline}/{name}": value for name, value in found.items() if name != "correct"}
    return table | roofline(trials) | of_calls(trials, budget, axis)


def of_view(
    trials: Trials, view: str, baseline: str = "eager", budget: float = math.inf, axis: str = "calls"
) -> dict[str, Estimate]:
    """correct, fast@p and speedup of one view, against one baseline."""
    trials = trials.comparable(baseline)
    states = (trials.at([budget], axis, values)[:, 0] for values in trials.standing(view, baseline))
    correct, speedup = states
    names = ["correct", *map(fast, THRESHOLDS)]
    columns = torch.stack([correct, *(fast_at(correct, speedup, p) for p in THRESHOLDS)], 1)
    shares = bootstrap(trials.per_task(columns), trials.per_task(torch.ones_like(columns)))
    return dict(zip(names, shares, strict=True)) | {"speedup": geometric_mean(trials, correct, speedup)}


def geometric_mean(trials: Trials, correct: Tensor, speedup: Tensor) -> Estimate:
    """Of the speed-ups [B] of correct completions [B], with its interval over tasks; NaN where nothing is correct."""
    right = correct & (speedup > 0)
    logs = torch.where(right, speedup.log(), 0.0)
    return _exp(bootstrap(trials.per_task(logs)[:, None], trials.per_task(right)[:, None], is_proportion=False)[0])


def _exp(found: Estimate) -> Estimate:
    """A geometric mean from the mean of logarithms."""
    return Estimate(math.exp(found.value), math.exp(found.low), math.exp(found.high), found.samples)


def of_calls(trials: Trials, budget: float = math.inf, axis: str = "calls") -> dict[str, Estimate]:
    """honest, lazy and the costs."""
    counted = trials.exists & (trials.spent(axis) <= budget)
    shares = [(counted & ~trials.hack).sum(1), (counted & trials.lazy).sum(1)]
    number = trials.per_task(counted.sum(1))[:, None]
    found = bootstrap(trials.per_task(torch.stack(shares, 1)), number.expand(-1, 2))
    costs = torch.stack([(counted * each).sum(1) for each in (trials.exists, trials.tokens, trials.seconds)], 1)
    rows = trials.per_task(torch.ones(len(costs)))[:, None].expand(-1, 3)
    means = bootstrap(trials.per_task(costs), rows, is_proportion=False)
    return dict(zip(("honest", "lazy"), found, strict=True)) | {
        f"cost/{name}": mean for name, mean in zip(AXES, means, strict=True)
    }


def roofline(trials: Trials) -> dict[str, Estimate]:
    """`roofline`: the median over correct completions of the share of the GPU's limit that they reach; nothing where no
    verdict has one. `samples` is how many have one."""
    shares = trials.roofline[trials.exists & trials.correct]
    known = shares[shares.isfinite()]
    return {"roofline": Estimate(float(known.quantile(0.5)), math.nan, math.nan, len(known))} if len(known) else {}


def curve(
    trials: Trials, budgets: Sequence[float], axis: str, threshold: float, view: str = "best", baseline: str = "eager"
) -> list[Estimate]:
    """Fast@threshold after each budget of judge calls, generated tokens or seconds."""
    trials = trials.comparable(baseline)
    correct, speedup = trials.standing(view, baseline)
    hit = trials.per_task(trials.at(budgets, axis, fast_at(correct, speedup, threshold)))
    return bootstrap(hit, trials.per_task(torch.ones(len(correct)))[:, None].expand_as(hit))


def speedup_distribution(
    trials: Trials, speedups: Sequence[float], view: str = "best", baseline: str = "eager"
) -> list[float]:
    """The share of trials that end correct and at least so many times as fast, for each of `speedups`."""
    trials = trials.comparable(baseline)
    correct, speedup = (values[:, -1] for values in trials.standing(view, baseline))
    return [fast_at(correct, speedup, p).double().mean().item() for p in speedups]


def grid(runs: Sequence[Trials], axis: str, points: int = 33) -> list[float]:
    """Budgets to draw curves at: every call, or geometric steps from the cheapest first call to the most
    expensive trial."""
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


def table_budgets(runs: Sequence[Trials], axis: str) -> list[float]:
    """A few equal budgets to compare at, `last_budget` of each run among them: of calls the powers of two, else round
    numbers."""
    if axis == "calls":
        return [float(budget) for budget in equal_budgets(runs)]
    return sorted({*map(rounded_up, grid(runs, axis, points=6)[1:]), *(last_budget(run, axis) for run in runs)} - {0.0})


def last_budget(run: Trials, axis: str) -> float:
    """Where a run ends among them: the first budget that covers all of it, 0 where nobody counted."""
    reach = run.reach(axis)
    return reach if axis == "calls" or not reach else rounded_up(reach)


def rounded_up(x: float) -> float:
    """To two digits, never to less.

    >>> rounded_up(6449), rounded_up(64000.0), rounded_up(0.0121)
    (6500.0, 64000.0, 0.013)
    """
    return float(Context(prec=2, rounding=ROUND_CEILING).create_decimal(str(x)))


def per_turn(
    trials: Trials, thresholds: Sequence[float] = THRESHOLDS, baseline: str = "eager"
) -> list[dict[str, Estimate]]:
    """correct and Fast@p of the turns at place 0, 1, ... of their chains, each turn for itself."""
    trials, table = trials.comparable(baseline), []
    speedup = trials.speedup if baseline == "eager" else trials.over[baseline]
    names = ["correct", *map(fast, thresholds)]
    for place in range(int(trials.turn.max()) + 1):
        here = trials.exists & (trials.turn == place)
        hits = [trials.correct, *(fast_at(trials.correct, speedup, p) for p in thresholds)]
        sums = trials.per_task(torch.stack([(hit & here).sum(1) for hit in hits], 1))
        found = bootstrap(sums, trials.per_task(here.sum(1))[:, None].expand_as(sums))
        table.append(dict(zip(names, found, strict=True)))
    return table


def breakdown(trials: Trials, key: Sequence[str | int | None]) -> dict[str | int, dict[str, Estimate]]:
    """correct and Fast@p (best of history), and `roofline`, for each value of `key` [tasks], e.g. `trials.levels`; None
    is left out."""
    correct, speedup = (values[:, -1] for values in trials.standing("best"))
    hits = torch.stack([correct, *(fast_at(correct, speedup, p) for p in THRESHOLDS)], 1)
    sums, numbers = trials.per_task(hits), trials.per_task(torch.ones_like(hits))
    table = {}
    for value in sorted({value for value in key if value is not None}):
        mine = torch.tensor([other == value for other in key])
        found = bootstrap(sums[mine], numbers[mine])
        part = trials.only({task for task, own in zip(trials.tasks, mine.tolist(), strict=True) if own})
        table[value] = dict(zip(["correct", *map(fast, THRESHOLDS)], found, strict=True)) | roofline(part)
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
    """Share of trials with a correct completion among the tasks with an operator, and how many tasks; worst first."""
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


def compare(first: Trials, other: Trials, budget: float, axis: str, baseline: str = "eager") -> dict[str, Paired]:
    """other - first at an equal budget (of at most `common_reach`) on the tasks that both have: correct, fast@p, their
    `last/`; speedup is other / first on the tasks that both solve."""
    table: dict[str, Paired] = {}
    for view in VIEWS:
        prefix = "" if view == "best" else "last/"
        sides = [_task_means(side.comparable(baseline), view, budget, axis, baseline) for side in (first, other)]
        common = sorted(set(sides[0]) & set(sides[1]))
        if not common:
            continue
        before, after = (torch.stack([side[task] for task in common]) for side in sides)
        names = ["correct", *map(fast, THRESHOLDS), "speedup"]
        for column, name in enumerate(names):
            table[prefix + name] = paired(before[:, column], after[:, column], ratio=name == "speedup")
    return table


def _task_means(trials: Trials, view: str, budget: float, axis: str, baseline: str) -> dict[str, Tensor]:
    """Per task: the shares of correct and Fast@p, and the geometric mean of its correct speed-ups (NaN for none)."""
    correct, speedup = (trials.at([budget], axis, values)[:, 0] for values in trials.standing(view, baseline))
    number = trials.per_task(torch.ones(len(correct)))
    hits = [correct, *(fast_at(correct, speedup, p) for p in THRESHOLDS)]
    timed = correct & (speedup > 0)
    logs = torch.where(timed, speedup.log(), 0.0)
    means = [trials.per_task(hit) / number for hit in hits]
    means.append((trials.per_task(logs) / trials.per_task(timed)).exp())
    return dict(zip(trials.tasks, torch.stack(means, 1), strict=True))


def of_k_samples(trials: Trials, thresholds: Sequence[float] = THRESHOLDS) -> dict[int, dict[str, Estimate]]:
    """What the best of k independent completions would reach, for k = 1, 2, 4, ...: pass@k, fast@p@k, and `speedup`,
    the geometric mean of the best speed-up where one keeps the reference unless a completion is faster.

    Unbiased, from the completions whose prompts held no earlier turn, as many of each trial as all trials have
    (`Trials.alone`): those of `single` and `parallel`, the first turns of other strategies. Only k that every task has
    samples for.
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
        best = _exp(bootstrap(sums[:, -1:], torch.ones(len(sums), 1), is_proportion=False)[0])
        table[k] = dict(zip([*hits, "speedup"], [*shares, best], strict=True))
    return table
