"""Metrics: Fast@p and the shares of correct, lazy and hacked turns, each with its interval.

Every sample counts. (The published trainer keys its table by prompt, so that of 16 samples one remains.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from drkernel.objective.intervals import Estimate, bootstrap, change_of
from drkernel.objective.rollouts import Rollouts, last_turn

THRESHOLDS = (1.0, 1.2, 1.5, 2.0)


def fast_at(correct: Tensor, speedup: Tensor, threshold: float) -> Tensor:
    """Which samples are correct and at least `threshold` times as fast as the reference; Fast@p is their share.

    correct bool [...], speedup float [...] -> bool [...]. KernelBench's fast_p; as in the paper, a hack is not correct.

    >>> fast_at(torch.tensor([True, True, False]), torch.tensor([1.2, 1.1, 9.0]), 1.2).tolist()
    [True, False, False]
    """
    return correct & (speedup >= threshold)


def best_of_history(correct: Tensor, speedup: Tensor) -> tuple[Tensor, Tensor]:
    """The fastest correct submission up to each turn, as (correct, speedup), each [B, T]. Paper section 6.

    >>> correct, speedup = torch.tensor([[True, False, True]]), torch.tensor([[1.5, 9.0, 1.2]])
    >>> best_of_history(correct, speedup)[1].tolist()
    [[1.5, 1.5, 1.5]]
    """
    return correct.cummax(1).values, torch.where(correct, speedup, 0.0).cummax(1).values


def estimate(values: Tensor, tasks: Tensor) -> Estimate:
    """The mean of `values` and its interval over tasks like these.

    values bool or float [N], tasks int64 [N]: samples of one task are alike, so tasks are what is independent

    Resampled tasks give the interval (`intervals.bootstrap`). To compare two policies on the same tasks, estimate the
    differences (`difference`).

    >>> print(estimate(torch.tensor([True, True, False, False] * 10), torch.arange(40)))
    0.500 [0.350, 0.650]
    >>> print(estimate(torch.tensor([True, True, False, False] * 10), torch.arange(10).repeat_interleave(4)))
    0.500 [0.237, 0.763]
    """
    if not len(values):
        return Estimate(math.nan, math.nan, math.nan, 0)
    _, sums, numbers = _by_task(values, tasks)
    return bootstrap(sums[:, None], numbers[:, None], is_proportion=values.dtype == torch.bool)[0]


def summary(rollouts: Rollouts) -> dict[str, Estimate]:
    """The table of an evaluation; groups are tasks. `summary(rollouts.first(t))` is the same after t turns.

    reward, correct, fast@p at the last turn; best/correct, best/fast@p for the best of the history; hack and lazy as
    shares of all turns.

    >>> table = Rollouts.empty(rows=4, turns=1)
    >>> table.turn_mask[:], table.groups[:] = True, torch.arange(4)
    >>> table.correct[:2], table.speedup[:2] = True, 1.3
    >>> {name: found.value for name, found in summary(table).items() if name in ("correct", "fast@1.2", "fast@1.5")}
    {'correct': 0.5, 'fast@1.2': 0.5, 'fast@1.5': 0.0}
    """
    return {name: estimate(values, tasks) for name, (values, tasks) in measures(rollouts).items()}


def difference(before: Rollouts, after: Rollouts) -> dict[str, Estimate]:
    """after - before of each measure, paired by task; the groups of both are tasks. A task that one side lacks, since
    the judge failed on all its trajectories, is left out. Intervals are those of `intervals.change_of`.

    >>> from drkernel.objective.rollouts import Rollouts
    >>> before, after = Rollouts.empty(4, 1), Rollouts.empty(4, 1)
    >>> for table, right in ((before, [0, 0, 1, 0]), (after, [1, 1, 1, 0])):
    ...     table.turn_mask[:], table.groups[:] = True, torch.tensor([0, 1, 2, 3])
    ...     table.correct[:, 0] = torch.tensor(right).bool()
    >>> difference(before, after)["correct"].value
    0.5
    """
    changes = {}
    old_measures, new_measures = measures(before), measures(after)
    for name, (values, _) in old_measures.items():
        (old_tasks, *old), (new_tasks, *new) = _by_task(*old_measures[name]), _by_task(*new_measures[name])
        first, other = (total / number for total, number in (old, new))
        first, other = first[torch.isin(old_tasks, new_tasks)], other[torch.isin(new_tasks, old_tasks)]
        changes[name] = change_of(first, other, is_proportion=values.dtype == torch.bool)
    return changes


def measures(rollouts: Rollouts) -> dict[str, tuple[Tensor, Tensor]]:
    """What `summary` averages: name -> (values [N], the task of each [N]).

    >>> table = Rollouts.empty(rows=2, turns=3)
    >>> table.turn_mask[:] = True
    >>> {name: len(values) for name, (values, tasks) in measures(table).items() if name in ("reward", "hack")}
    {'reward': 2, 'hack': 6}
    """
    turn_mask, tasks = rollouts.turn_mask, rollouts.groups
    best_correct, best_speedup = best_of_history(rollouts.correct, rollouts.speedup)
    views = {
        "": (last_turn(rollouts.correct, turn_mask), last_turn(rollouts.speedup, turn_mask)),
        "best/": (best_correct[:, -1], best_speedup[:, -1]),
    }
    table = {"reward": (last_turn(rollouts.rewards, turn_mask), tasks)}
    for prefix, (correct, speedup) in views.items():
        table[f"{prefix}correct"] = (correct, tasks)
        for threshold in THRESHOLDS:
            table[f"{prefix}fast@{threshold:g}"] = (fast_at(correct, speedup, threshold), tasks)
    task_of_turn = tasks[:, None].expand_as(turn_mask)[turn_mask]
    return table | {name: (getattr(rollouts, name)[turn_mask], task_of_turn) for name in ("hack", "lazy")}


def _by_task(values: Tensor, tasks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The tasks, sorted, and for each the sum of `values` [N] and how many there are: each [tasks]."""
    names, index, number = tasks.unique(return_inverse=True, return_counts=True)
    return names, values.new_zeros(len(names), dtype=torch.float64).index_add(0, index, values.double()), number
