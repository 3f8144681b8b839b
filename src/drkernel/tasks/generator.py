"""A seeded generator of tasks in KernelBench's format, split by operator composition.

A composition is the ordered names of a task's operators. It belongs to exactly one split, whatever the shapes, literals
and style of the task, so test tasks ask for compositions that training never showed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence

from drkernel.tasks.families import Family, draw, families_of, layout_of
from drkernel.tasks.splits import SPLITS, split_of
from drkernel.tasks.writer import describe, write
from drkernel.types import DrKernelError, Task

VERSION = 1
"""The newest version. A version and a seed name a stream of tasks for ever: what is added to families, operators or
layouts states the version that it comes with (`since`), and earlier versions do not draw it."""


def generate(
    split: str, count: int, seed: int, families: Sequence[str] | None = None, version: int = VERSION
) -> list[Task]:
    """`count` distinct tasks of a split. With the same seed, more tasks begin with the fewer.

    Args:
        split: train, validation or test.
        count: how many.
        seed: of all random choices.
        families: names of `FAMILIES` to draw from, in turn; None for all.
        version: which operators and families there are to draw from, from 1 to VERSION.

    Raises:
        DrKernelError: unknown split, family or version, or no family at all.
    """
    if not 1 <= version <= VERSION:
        raise DrKernelError(f"tasks.generator: found version {version}, expected 1 to {VERSION}")
    if split not in SPLITS:
        raise DrKernelError(f"unknown split {split!r}; expected one of {', '.join(SPLITS)}")
    known = families_of(version)
    names = list(known) if families is None else list(families)
    if not names:
        raise DrKernelError("generated tasks: the list of families is empty")
    if unknown := [name for name in names if name not in known]:
        raise DrKernelError(f"unknown task family {unknown[0]!r}; expected one of {', '.join(known)}")
    tasks: dict[str, Task] = {}
    for task in _stream(split, seed, {name: known[name] for name in names}):
        if len(tasks) >= count:
            break
        tasks.setdefault(task.id, task)
    return list(tasks.values())


def _stream(split: str, seed: int, families: dict[str, Family]) -> Iterator[Task]:
    """Families in turn, each round in a new order."""
    rng = random.Random(f"{split}/{seed}")
    while True:
        for family in rng.sample(list(families), len(families)):
            yield _draw_task(family, families[family], split, rng)


def _draw_task(family: str, choices: Family, split: str, rng: random.Random) -> Task:
    """A task of the family. Compositions of other splits are drawn again."""
    composition = draw(choices, rng)
    while split_of("+".join(composition)) != split:
        composition = draw(choices, rng)
    info = describe(family, composition, layout_of(choices, composition, rng), rng)
    source = write(info)
    digest = hashlib.sha256(f"{source}{sorted(info['small'].items())}".encode()).hexdigest()[:8]
    name = "+".join(composition)
    return Task(
        id=f"generated/{name}/{digest}", source=source, split=split, family=family, small=info["small"], info=info
    )
