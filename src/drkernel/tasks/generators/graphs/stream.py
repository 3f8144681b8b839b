"""Streams of graph tasks: families in turn, each composition in one split."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from drkernel.tasks.generators.graphs.draw import FAMILIES, draw
from drkernel.tasks.generators.graphs.source.reference import task_of
from drkernel.tasks.splits import split_of
from drkernel.types import DrKernelError, Task

_DRAWS = 60
"""Of one family, until one is in the split; families with few compositions may have none there."""
_EMPTY_ROUNDS = 20


def families_of(dtype: str, names: Sequence[str]) -> list[str]:
    """Those of the families that have tasks of a dtype.

    Raises:
        DrKernelError: none has.
    """
    found = [name for name in names if dtype == "float32" or FAMILIES[name].narrow]
    if not found:
        expected = ", ".join(name for name, family in FAMILIES.items() if family.narrow)
        raise DrKernelError(f"tasks.families: none of {', '.join(names)} has {dtype} tasks; these have: {expected}")
    return found


def stream(split: str, seed: int, names: Sequence[str], dtype: str) -> Iterator[Task]:
    """Tasks of a split: in each round every family as often as its share says, in a new order.

    Raises:
        DrKernelError: the families have no composition in the split.
    """
    rng = random.Random(f"graphs/{split}/{seed}/{dtype}")
    round_ = [name for name in names for _ in range(FAMILIES[name].share)]
    empty = 0
    while empty < _EMPTY_ROUNDS:
        empty += 1
        for name in rng.sample(round_, len(round_)):
            if task := _task(name, split, rng, dtype):
                empty = 0
                yield task
    raise DrKernelError(f"tasks.families: found no composition of {', '.join(names)} in split {split}; name more")


def _task(name: str, split: str, rng: random.Random, dtype: str) -> Task | None:
    """A task of the family in the split; None where several draws gave none."""
    for _ in range(_DRAWS):
        graph, key = draw(name, rng, dtype)
        if split_of(key) == split:
            return task_of(graph, rng, split, name, key)
    return None
