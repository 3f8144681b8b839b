"""Seeded generators of tasks in KernelBench's format, by name in GENERATORS.

    operators/    compositions of a few element-wise operators around one core; the default
    graphs/       PyTorch at large, among it small networks
    programs/     free programs, statement by statement
    ../written/   variants of written tasks

Each has a composition of its own kind (the ordered names of operators, of nodes, of steps), which belongs to exactly
one split, whatever the shapes, literals and style of the task. So test tasks ask for compositions that training never
showed. A variant is in the split of its task.

Inputs and weights have one dtype. Each dtype has a stream of tasks of its own: those of float32 are the same, in the
same order, whichever other dtypes lie between them.

A number behind a name says how many steps or written tasks an earlier generator had; these are kept, so that what runs
and policies of their time drew can be drawn again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drkernel.tasks import written
from drkernel.tasks.generators import programs
from drkernel.tasks.generators.graphs import draw as graph_draw
from drkernel.tasks.generators.graphs import stream as graph_stream
from drkernel.tasks.generators.operators import stream as operator_stream
from drkernel.tasks.generators.operators.families import DTYPES, families_of
from drkernel.tasks.splits import SPLITS
from drkernel.types import DrKernelError, Task


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
        lambda split, seed, names, dtype: operator_stream.stream(split, seed, names, dtype, edition),
        formerly,
    )


def _graphs(split: str, seed: int, names: list[str], dtype: str) -> Iterator[Task]:
    return graph_stream.stream(split, seed, graph_stream.families_of(dtype, names), dtype)


def _programs(edition: int, formerly: int) -> Generator:
    return Generator(
        lambda: dict.fromkeys(programs.FAMILIES),
        lambda split, seed, names, dtype: programs.stream(split, seed, names, dtype, edition),
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
    # compositions of a few operators (`generators.operators`)
    "operators": _operators(edition=1, formerly=1),
    # PyTorch at large, among it small networks (`generators.graphs`)
    "graphs": Generator(lambda: graph_draw.FAMILIES, _graphs, formerly=2),
    # statement by statement (`generators.programs`); the composition is the order of the steps
    "programs": _programs(edition=2, formerly=4),
    "programs_55": _programs(edition=1, formerly=3),
    # variants of written tasks (`tasks.written`), each in the split of its task
    "written": _written(written.FAMILIES, formerly=7),
    "written_1670": _written(written.NEXT_FAMILIES, formerly=6),
    "written_850": _written(written.FIRST_FAMILIES, formerly=5),
}
"""By name. The tasks of `operators` are frozen (digests in tests/tasks/generators/test_generators.py): what is added
to families, operators or layouts states the edition that it comes with (`since`), and belongs to another generator.
Those of others change with the code: with a seed, name the commit. `tasks.json` of a run has its tasks' digest."""
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
