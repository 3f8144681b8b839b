"""Loops that go round as often at small sizes as at the published ones.

    for t in range(x.shape[1]): h = torch.tanh(self.a(h) + x[:, t])

Who unrolls such a loop is right at the published sizes, and wrong where it goes round more often, or less often.
"""

from __future__ import annotations

from collections.abc import Iterator

from drkernel.judge.trusted.sizes.distinct_sizes import at_sizes, halved
from drkernel.judge.trusted.sizes.same_calls import are_same, published_calls
from drkernel.judge.trusted.sizes.size_cost import Cost, planned_cost
from drkernel.tasks.module import Reference
from drkernel.types import Task

_MOST_CALLS = 512
"""Operators of a reference whose loops may be unrolled by hand. An interpreter launches each."""


def with_same_loops(task: Task, limit: Cost) -> Task:
    """The task with one constant larger, so that its loops go round as often as at the published sizes; itself where no
    constant does that, or it exceeds a limit then.

    Args:
        task: with `small` set.
    """
    small, published = Reference(task, task.small), published_calls(task)
    if published is None or published.number > _MOST_CALLS or are_same(small) or not are_same(small, loops=False):
        return task
    for name, most in Reference(task).constants.items():
        for value in _larger(small.constants[name], most):
            larger = {**small.constants, name: value}
            cost = planned_cost(task, larger)
            if cost is None or cost.undefined or cost.exceeds(limit):
                break
            if are_same(Reference(task, larger)):
                return at_sizes(task, larger)
    return task


def _larger(small: int, full: int) -> Iterator[int]:
    """Doublings of a small constant, as far as halvings of the published one go.

    >>> list(_larger(25, 200)), list(_larger(16, 113))
    ([50, 100, 200], [32, 64, 113])
    """
    while small < full:
        small = halved(full, 2 * small)
        yield small
