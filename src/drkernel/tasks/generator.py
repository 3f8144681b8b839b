"""A seeded generator of tasks in KernelBench's format, split by operator composition.

A composition is the ordered names of a task's operators. It belongs to exactly one split, whatever the shapes, literals
and style of the task, so test tasks ask for compositions that training never showed.

Inputs and weights have one dtype. Each dtype has a stream of tasks of its own: those of float32 are the same, in the
same order, whichever other dtypes lie between them.

GENERATORS has them by name. A number behind a name says how many steps or written tasks an earlier generator had; these
are kept, so that what runs and policies of their time drew can be drawn again.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drkernel.tasks import free, written
from drkernel.tasks.families import DTYPES, FAMILIES_OF_16_BITS, Family, draw, families_of, has_range, layout_of
from drkernel.tasks.graphs import draw as graph_draw
from drkernel.tasks.graphs import stream as graph_stream
from drkernel.tasks.splits import SPLITS, split_of
from drkernel.tasks.writer import describe, write
from drkernel.types import DrKernelError, Task

_Named = tuple[str, Family]


@dataclass(frozen=True)
class Generator:
    """What draws tasks."""

    families: Callable[[], Mapping[str, Any]]
    """What `families` may name."""
    stream: Callable[[str, int, list[str], str], Iterator[Task]]
    """Tasks without end, of a split, a seed, families and a dtype."""
    formerly: int = 0
    """The number that stood for it before generators had names. No seed depends on it."""
    has_dtypes: bool = True
    """Whether `dtypes` chooses; else tasks have dtypes of their own."""


def _operators(edition: int, formerly: int = 0) -> Generator:
    return Generator(
        lambda: families_of(edition),
        lambda split, seed, names, dtype: _stream(split, seed, _families_of(dtype, names, edition), dtype),
        formerly,
    )


def _graphs(split: str, seed: int, names: list[str], dtype: str) -> Iterator[Task]:
    return graph_stream.stream(split, seed, graph_stream.families_of(dtype, names), dtype)


def _programs(edition: int, formerly: int) -> Generator:
    return Generator(
        lambda: dict.fromkeys(free.FAMILIES),
        lambda split, seed, names, dtype: free.stream(split, seed, names, dtype, edition),
        formerly,
    )


def _written(families: Sequence[str], formerly: int) -> Generator:
    return Generator(
        lambda: dict.fromkeys(families),
        lambda split, seed, names, dtype: written.stream(split, seed, names),
        formerly,
        has_dtypes=False,
    )


GENERATORS = {
    # compositions of a few operators (`tasks.families`)
    "operators": _operators(edition=1, formerly=1),
    # PyTorch at large, among it small networks (`tasks.graphs`)
    "graphs": Generator(lambda: graph_draw.FAMILIES, _graphs, formerly=2),
    # statement by statement (`tasks.free`); the composition is the order of the steps
    "programs": _programs(edition=2, formerly=4),
    "programs_55": _programs(edition=1, formerly=3),
    # variants of written tasks (`tasks.written`), each in the split of its task
    "written": _written(written.FAMILIES, formerly=7),
    "written_1670": _written(written.NEXT_FAMILIES, formerly=6),
    "written_850": _written(written.FIRST_FAMILIES, formerly=5),
}
"""By name. The tasks of `operators` are frozen (digests in tests/tasks/test_generator.py): what is added to families,
operators or layouts states the edition that it comes with (`since`), and belongs to another generator. Those of others
change with the code: with a seed, name the commit. `tasks.json` of a run has its tasks' digest."""
DEFAULT = "operators"


def expect_known(name: Any, place: str = "tasks.generator") -> None:
    """Raises DrKernelError where a place, which the message begins with, names no generator.

    >>> expect_known(7)
    Traceback (most recent call last):
    drkernel.types.DrKernelError: tasks.generator: found 7, which is called written now; expected written
    """
    if name in GENERATORS:
        return
    for new, entry in GENERATORS.items():
        if str(name) == str(entry.formerly):
            raise DrKernelError(f"{place}: found {name}, which is called {new} now; expected {new}")
    raise DrKernelError(f"{place}: found {name}; expected one of {', '.join(GENERATORS)}")


def generate(
    split: str,
    count: int,
    seed: int,
    families: Sequence[str] | None = None,
    dtypes: Sequence[str] = DTYPES[:1],
    generator: str = DEFAULT,
) -> list[Task]:
    """`count` distinct tasks of a split. With the same seed, more tasks begin with the fewer.

    Args:
        split: train, validation or test.
        count: how many.
        seed: of all random choices.
        families: names to draw from, in turn; None for all that generator and dtype have.
        dtypes: of DTYPES, drawn with equal shares; one that is named twice has two.
        generator: a name of GENERATORS.

    Raises:
        DrKernelError: unknown split, family, dtype or generator, or no family or dtype at all.
    """
    expect_known(generator)
    chosen = GENERATORS[generator]
    if split not in SPLITS:
        raise DrKernelError(f"unknown split {split!r}; expected one of {', '.join(SPLITS)}")
    known = chosen.families()
    names = list(known) if families is None else list(families)
    if not names:
        raise DrKernelError("generated tasks: the list of families is empty")
    if unknown := [name for name in names if name not in known]:
        raise DrKernelError(f"tasks.families: unknown task family {unknown[0]!r}; expected one of {', '.join(known)}")
    if not dtypes or (unknown := [dtype for dtype in dtypes if dtype not in DTYPES]):
        found = repr(unknown[0]) if dtypes else "none"
        raise DrKernelError(f"tasks.dtypes: found {found}, expected some of {', '.join(DTYPES)}")
    if not chosen.has_dtypes and list(dtypes) != [DTYPES[0]]:
        raise DrKernelError("tasks.dtypes: variants of written tasks have dtypes of their own")
    streams = {dtype: chosen.stream(split, seed, names, dtype) for dtype in dtypes}
    tasks: dict[str, Task] = {}
    for task in _mixed(split, seed, streams, dtypes):
        if len(tasks) >= count:
            break
        tasks.setdefault(task.id, task)
    return list(tasks.values())


def _mixed(split: str, seed: int, streams: dict[str, Iterator[Task]], dtypes: Sequence[str]) -> Iterator[Task]:
    """Tasks of these dtypes, drawn with equal shares from the stream of each."""
    rng = random.Random(f"{split}/{seed}/dtypes")
    while True:
        yield next(streams[rng.choice(dtypes)])


def _families_of(dtype: str, names: list[str], edition: int) -> list[_Named]:
    """Those of the families of an edition that have tasks of a dtype."""
    known = families_of(edition)
    found = [(name, known[name]) for name in names if dtype == "float32" or name in FAMILIES_OF_16_BITS]
    if not found:
        expected = ", ".join(FAMILIES_OF_16_BITS)
        raise DrKernelError(f"tasks.families: none of {', '.join(names)} has {dtype} tasks; these have: {expected}")
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
