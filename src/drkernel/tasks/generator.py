"""A seeded generator of tasks in KernelBench's format, split by operator composition.

A composition is the ordered names of a task's operators. It belongs to exactly one split, whatever the shapes, literals
and style of the task, so test tasks ask for compositions that training never showed.

Inputs and weights have one dtype. Each dtype has a stream of tasks of its own: those of float32 are the same, in the
same order, whichever other dtypes lie between them.

Version 1 composes operators by `tasks.families`; version 2 draws graphs of operators (`tasks.graphs`); version 3 writes
programs statement by statement (`tasks.free`), whose composition is the order of their steps; version 4 does so with
more steps. Version 5 varies written tasks (`tasks.written`), whose splits go by the task that is varied;
versions 6 and 7 do so with those of more authors.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from drkernel.tasks import free, written
from drkernel.tasks.families import DTYPES, FAMILIES_OF_16_BITS, Family, draw, families_of, has_range, layout_of
from drkernel.tasks.graphs import draw as graph_draw
from drkernel.tasks.graphs import stream as graph_stream
from drkernel.tasks.splits import SPLITS, split_of
from drkernel.tasks.writer import describe, write
from drkernel.types import DrKernelError, Task

VERSION = 1
"""The version that is drawn where none is named. Version 1 is frozen (digests in tests/tasks/test_generator.py): what
is added to families, operators or layouts states the version that it comes with (`since`), and version 1 does not draw
it. Later versions change with the code: with a seed, name the commit. `tasks.json` of a run has its tasks' digest."""
NEWEST = 7
GRAPHS = 2
FREE = {3: 1, 4: 2}
WRITTEN = {5: written.FIRST_FAMILIES, 6: written.NEXT_FAMILIES, 7: written.FAMILIES}
"""The versions that draw graphs, free programs with the edition of their steps, and variants of written tasks of these
families; all others draw from `tasks.families`."""
_Named = tuple[str, Family]


def generate(
    split: str,
    count: int,
    seed: int,
    families: Sequence[str] | None = None,
    dtypes: Sequence[str] = DTYPES[:1],
    version: int = VERSION,
) -> list[Task]:
    """`count` distinct tasks of a split. With the same seed, more tasks begin with the fewer.

    Args:
        split: train, validation or test.
        count: how many.
        seed: of all random choices.
        families: names to draw from, in turn; None for all that version and dtype have.
        dtypes: of DTYPES, drawn with equal shares; one that is named twice has two.
        version: which operators and families there are to draw from, from 1 to NEWEST.

    Raises:
        DrKernelError: unknown split, family, dtype or version, or no family or dtype at all.
    """
    if not 1 <= version <= NEWEST:
        raise DrKernelError(f"tasks.generator: found version {version}, expected 1 to {NEWEST}")
    if split not in SPLITS:
        raise DrKernelError(f"unknown split {split!r}; expected one of {', '.join(SPLITS)}")
    known = _known(version)
    names = list(known) if families is None else list(families)
    if not names:
        raise DrKernelError("generated tasks: the list of families is empty")
    if unknown := [name for name in names if name not in known]:
        raise DrKernelError(f"tasks.families: unknown task family {unknown[0]!r}; expected one of {', '.join(known)}")
    if not dtypes or (unknown := [dtype for dtype in dtypes if dtype not in DTYPES]):
        found = repr(unknown[0]) if dtypes else "none"
        raise DrKernelError(f"tasks.dtypes: found {found}, expected some of {', '.join(DTYPES)}")
    tasks: dict[str, Task] = {}
    if version in FREE:
        streams = {dtype: free.stream(split, seed, names, dtype, FREE[version]) for dtype in dtypes}
    elif version in WRITTEN:
        if list(dtypes) != [DTYPES[0]]:
            raise DrKernelError("tasks.dtypes: variants of written tasks have dtypes of their own")
        streams = {DTYPES[0]: written.stream(split, seed, names)}
    elif version == GRAPHS:
        streams = {d: graph_stream.stream(split, seed, graph_stream.families_of(d, names), d) for d in dtypes}
    else:
        named = [(name, known[name]) for name in names]
        streams = {dtype: _stream(split, seed, _families_of(dtype, named), dtype) for dtype in dtypes}
    for task in _mixed(split, seed, streams, dtypes):
        if len(tasks) >= count:
            break
        tasks.setdefault(task.id, task)
    return list(tasks.values())


def _known(version: int) -> Mapping[str, Any]:
    """What `families` may name."""
    if version in FREE or version in WRITTEN:
        return dict.fromkeys(free.FAMILIES if version in FREE else WRITTEN[version])
    return graph_draw.FAMILIES if version == GRAPHS else families_of(version)


def _mixed(split: str, seed: int, streams: dict[str, Iterator[Task]], dtypes: Sequence[str]) -> Iterator[Task]:
    """Tasks of these dtypes, drawn with equal shares from the stream of each."""
    rng = random.Random(f"{split}/{seed}/dtypes")
    while True:
        yield next(streams[rng.choice(dtypes)])


def _families_of(dtype: str, families: list[_Named]) -> list[_Named]:
    """Those of the families that have tasks of a dtype."""
    found = [(name, family) for name, family in families if dtype == "float32" or name in FAMILIES_OF_16_BITS]
    if not found:
        names, expected = ", ".join(name for name, _ in families), ", ".join(FAMILIES_OF_16_BITS)
        raise DrKernelError(f"tasks.families: none of {names} has {dtype} tasks; these have: {expected}")
    return found


def _stream(split: str, seed: int, families: list[_Named], dtype: str) -> Iterator[Task]:
    """Families in turn, each round in a new order."""
    rng = random.Random(f"{split}/{seed}" if dtype == "float32" else f"{split}/{seed}/{dtype}")
    while True:
        for name, family in rng.sample(families, len(families)):
            yield _draw_task(name, family, split, rng, dtype)


def _draw_task(name: str, family: Family, split: str, rng: random.Random, dtype: str) -> Task:
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
