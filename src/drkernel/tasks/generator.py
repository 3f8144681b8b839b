"""A seeded generator of tasks in KernelBench's format, split by operator composition.

A composition is the ordered names of a task's operators. It belongs to exactly one split, whatever the shapes, literals
and style of the task, so test tasks ask for compositions that training never showed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence

from drkernel.tasks.families import FAMILIES, draw, layout_of
from drkernel.tasks.splits import SPLITS, split_of
from drkernel.tasks.writer import describe, write
from drkernel.types import DrKernelError, Task


def generate(split: str, count: int, seed: int, families: Sequence[str] | None = None) -> list[Task]:
    """`count` distinct tasks of a split. With the same seed, more tasks begin with the fewer.

    Args:
        split: train, validation or test.
        count: how many.
        seed: of all random choices.
        families: names of `FAMILIES` to draw from, in turn; None for all.

    Raises:
        DrKernelError: unknown split or family, or no family at all.
    """
    if split not in SPLITS:
        raise DrKernelError(f"unknown split {split!r}; expected one of {', '.join(SPLITS)}")
    names = list(FAMILIES) if families is None else list(families)
    if not names:
        raise DrKernelError("generated tasks: the list of families is empty")
    if unknown := [name for name in names if name not in FAMILIES]:
        raise DrKernelError(f"unknown task family {unknown[0]!r}; expected one of {', '.join(FAMILIES)}")
    tasks: dict[str, Task] = {}
    for task in _stream(split, seed, names):
        if len(tasks) >= count:
            break
        tasks.setdefault(task.id, task)
    return list(tasks.values())


def _stream(split: str, seed: int, families: list[str]) -> Iterator[Task]:
    """Families in turn, each round in a new order."""
    rng = random.Random(f"{split}/{seed}")
    while True:
        for family in rng.sample(families, len(families)):
            yield _draw_task(family, split, rng)


def _draw_task(family: str, split: str, rng: random.Random) -> Task:
    """A task of the family. Compositions of other splits are drawn again."""
    composition = draw(family, rng)
    while split_of("+".join(composition)) != split:
        composition = draw(family, rng)
    info = describe(family, composition, layout_of(family, composition, rng), rng)
    source = write(info)
    digest = hashlib.sha256(f"{source}{sorted(info['small'].items())}".encode()).hexdigest()[:8]
    name = "+".join(composition)
    return Task(
        id=f"generated/{name}/{digest}", source=source, split=split, family=family, small=info["small"], info=info
    )
