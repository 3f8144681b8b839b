"""Loops that go round as often at small sizes as at the published ones.

    for t in range(x.shape[1]): h = torch.tanh(self.a(h) + x[:, t])

Who unrolls such a loop is right at the published sizes, and wrong where it goes round more often, or less often.
"""

from __future__ import annotations

import dataclasses

from drkernel.judge.trusted.distinct_sizes import halved
from drkernel.judge.trusted.same_calls import are_same, published_calls
from drkernel.judge.trusted.size_cost import Cost, planned_cost
from drkernel.tasks.module import Reference
from drkernel.types import Task

_MOST_CALLS = 512
"""Operators of a reference whose loops may be unrolled by hand. An interpreter launches each."""


def with_rounds(task: Task, limit: Cost) -> Task:
    """The task with one constant larger, so that its loops go round as often as at the published sizes; itself where no
    constant does that, or it exceeds a limit then.

    Args:
        task: with `small` set.
    """
    small, published = Reference(task, task.small), published_calls(task)
    if published is None or len(published.operators) > _MOST_CALLS or are_same(small) or not are_same(small, False):
        return task
    full, least = Reference(task).constants, small.constants
    for name in full:
        value = least[name]
        while (value := halved(full[name], 2 * value)) > least[name]:
            larger = {**least, name: value}
            cost = planned_cost(task, larger)
            if cost is None or cost.undefined or cost.exceeds(limit):
                break
            if are_same(Reference(task, larger)):
                return dataclasses.replace(task, small={n: v for n, v in larger.items() if v != full[n]})
            if value == full[name]:
                break
    return task
