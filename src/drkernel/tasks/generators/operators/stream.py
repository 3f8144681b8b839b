"""Streams of compositions: families in turn, each composition in one split."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

from drkernel.tasks.generators.operators.families import (
    FAMILIES_OF_16_BITS,
    Family,
    draw,
    families_of,
    has_range,
    layout_of,
)
from drkernel.tasks.generators.operators.writer import describe, write
from drkernel.tasks.splits import split_of
from drkernel.types import DrKernelError, Task


def stream(split: str, seed: int, names: list[str], dtype: str, edition: int) -> Iterator[Task]:
    """Tasks of a split: the families in turn, each round in a new order.

    Raises:
        DrKernelError: none of the families of the edition has tasks of the dtype.
    """
    families = _families(dtype, names, edition)
    rng = random.Random(f"{split}/{seed}" if dtype == "float32" else f"{split}/{seed}/{dtype}")
    return _rounds(split, families, dtype, rng)


def _families(dtype: str, names: list[str], edition: int) -> list[tuple[str, Family]]:
    """Those of the families of an edition that have tasks of a dtype."""
    known = families_of(edition)
    found = [(name, known[name]) for name in names if dtype == "float32" or name in FAMILIES_OF_16_BITS]
    if not found:
        expected = ", ".join(FAMILIES_OF_16_BITS)
        raise DrKernelError(f"tasks.families: none of {', '.join(names)} has {dtype} tasks; these have: {expected}")
    return found


def _rounds(split: str, families: list[tuple[str, Family]], dtype: str, rng: random.Random) -> Iterator[Task]:
    while True:
        for name, family in rng.sample(families, len(families)):
            yield _task(name, family, split, rng, dtype)


def _task(name: str, family: Family, split: str, rng: random.Random, dtype: str) -> Task:
    """A task of the family. Compositions of other splits, or that leave the dtype's range, are drawn again."""
    composition = draw(family, rng)
    while split_of("+".join(composition)) != split or not has_range(dtype, composition):
        composition = draw(family, rng)
    info = describe(name, composition, layout_of(family, composition, rng), rng)
    if dtype != "float32":
        info["dtype"] = dtype
    source = write(info)
    digest = hashlib.sha256(f"{source}{sorted(info['small'].items())}".encode()).hexdigest()[:8]
    return Task(
        id=f"generated/{'+'.join(composition)}/{digest}",
        source=source,
        split=split,
        family=name,
        small=info["small"],
        precision="ieee" if dtype == "float32" else "low",
        info=info,
    )
