"""What is to be solved: `load_tasks` reads or draws tasks of any source.

Where tasks come from:

    generators/   seeded generators: operators, graphs, free programs
    handwritten/  100 tasks, only to test on
    written/      2,170 tasks by fifteen authors, and variants of them
    loaders/      KernelBench folders, Python files, records, hub datasets

What is known of any task:

    splits.py     train, validation or test, by hash
    backward.py   its backward pass, as a task
    precision.py  what arithmetic a right submission may use
    module.py     its source as running code: the reference, its arguments and inputs
    seeding.py    random numbers that follow from one seed
    sources.py    the numbers in a source, and others in their place
    scopes.py     what the names in a source stand for
    own_sizes.py  a source with the values of constants that a submission does not see
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from drkernel.tasks.generators import DEFAULT, generate
from drkernel.tasks.generators.operators.families import DTYPES
from drkernel.tasks.handwritten import HALVES, read_handwritten
from drkernel.tasks.loaders.kernelbench import python_files, read_folder, read_task, write_task
from drkernel.tasks.loaders.records import READERS, read_hub, read_records, tables
from drkernel.tasks.precision import AUTO, with_precision
from drkernel.tasks.splits import SPLITS
from drkernel.tasks.written import read_written
from drkernel.types import DrKernelError, Task

__all__ = ["generate", "load_tasks", "read_task", "test_source", "with_precision", "write_task"]


PUBLISHED_TESTS = {"hub:hkust-nlp/drkernel-rl-data": "hub:hkust-nlp/drkernel-validation-data"}
"""Published training sets, and the sets that were published to test on: the paper's query pool, KernelBench level 2."""
_STATED = (
    "Splits go by hash of the id where nothing states them; to state them: folders train/ and test/ in a folder, "
    "`split` in a record, or tasks.eval_source for the test tasks"
)


def test_source(source: str, eval_source: str | None) -> tuple[str, str]:
    """Where the test tasks of a run come from that trains on `source`, and which split of that: a source of its own is
    a test set as a whole.

    >>> test_source("generated", None), test_source("generated", "handwritten")
    (('generated', 'test'), ('handwritten', 'all'))
    """
    chosen = eval_source or PUBLISHED_TESTS.get(source, source)
    paths = Path(chosen), Path(source)
    same = chosen == source or (all(path.exists() for path in paths) and paths[0].samefile(paths[1]))
    return chosen, "test" if same or chosen == "generated" else "all"


def load_tasks(
    source: str,
    *,
    split: str,
    count: int | None = None,
    seed: int = 0,
    levels: Sequence[int] | None = None,
    families: Sequence[str] | None = None,
    generator: str = DEFAULT,
    dtypes: Sequence[str] = DTYPES[:1],
    precision: str = AUTO,
    on_skip: Callable[[str], None] | None = None,
) -> list[Task]:
    """Tasks of one split from any source.

    Args:
        source: `generated`, `handwritten` (all in test), `handwritten:development` or `handwritten:final` (its halves),
            `written` (2,170 by fifteen authors), a folder (of Python files, or KernelBench's layout; folders `train`
            and `test` in it state splits), a .jsonl, .json or .parquet file or a folder of these, one .py file or a
            folder with one (in every split), or `hub:<dataset id>`.
        split: train, validation, test; or all, for sources that are a benchmark as a whole.
        count: at most how many; None takes all. The generator needs a number.
        seed: which tasks are drawn, where there are more than `count`.
        levels: KernelBench levels to keep.
        families: values of `Task.family` to keep.
        generator: what draws generated tasks, a name of `tasks.generators.GENERATORS`.
        dtypes: of inputs and weights of generated tasks; see `generate`.
        precision: of all tasks; `auto` leaves each what it states or what its dtypes say (`tasks.precision`).
        on_skip: called with one line about each broken file of a folder, which is then skipped; without it they raise.

    Raises:
        DrKernelError: unknown split or precision, unreadable source, or nothing left of it.
    """
    if split not in (*SPLITS, "all"):
        raise DrKernelError(f"unknown split {split!r}; expected one of {', '.join(SPLITS)}, all")
    if count is not None and count < 1:
        raise DrKernelError(f"tasks from {source}: count must be positive, found {count}")
    if source == "generated":
        tasks = _generated(split, count, seed, levels, families, generator, dtypes)
    else:
        if list(dtypes) != [DTYPES[0]]:
            raise DrKernelError(f"tasks.dtypes is for generated tasks; those from {source} have dtypes of their own")
        tasks = _chosen(source, split, count, seed, levels, families, on_skip)
    return tasks if precision == AUTO else [with_precision(task, precision) for task in tasks]


def _chosen(
    source: str,
    split: str,
    count: int | None,
    seed: int,
    levels: Sequence[int] | None,
    families: Sequence[str] | None,
    on_skip: Callable[[str], None] | None,
) -> list[Task]:
    """Tasks that are not generated; arguments as those of `load_tasks`."""
    found = _read(source, split, levels, on_skip)
    tasks = [task for task in found if split in ("all", task.split)]
    tasks = [task for task in tasks if levels is None or task.level in levels]
    tasks = [task for task in tasks if families is None or task.family in families]
    if not tasks:
        filters = {"split": split, "levels": levels, "families": families}
        wanted = ", ".join(f"{name}={value}" for name, value in filters.items() if value is not None)
        raise DrKernelError(f"tasks from {source}: none with {wanted}; found {_counted(found)}. {_STATED}")
    if count is not None and count < len(tasks):
        return random.Random(seed).sample(tasks, count)
    return tasks


def _counted(tasks: Sequence[Task]) -> str:
    """How many tasks there are in each split, in words."""
    numbers = {split: sum(task.split == split for task in tasks) for split in SPLITS}
    return ", ".join(f"{number} {split}" for split, number in numbers.items() if number) or "no task at all"


def _generated(
    split: str,
    count: int | None,
    seed: int,
    levels: object,
    families: Sequence[str] | None,
    generator: str,
    dtypes: Sequence[str],
) -> list[Task]:
    if count is None:
        raise DrKernelError(
            "tasks from generated: a count is needed, the generator does not end; expected a number "
            "(tasks.count, or tasks.eval_count for what is tested)"
        )
    if levels is not None:
        raise DrKernelError("tasks from generated: they have no levels; choose families instead")
    if split == "all":
        raise DrKernelError(f"tasks from generated: choose one split of {', '.join(SPLITS)}")
    return generate(split, count, seed, families, dtypes, generator)


def _half(source: str) -> str | None:
    """The half of the handwritten tasks that a source names; None for all of them."""
    half = source.partition(":")[2]
    if source != "handwritten" and half not in HALVES:
        expected = "handwritten, handwritten:development or handwritten:final"
        raise DrKernelError(f"tasks.source or tasks.eval_source: found {source!r}, expected {expected}")
    return half or None


def _read(source: str, split: str, levels: Sequence[int] | None, on_skip: Callable[[str], None] | None) -> list[Task]:
    if not source.strip():
        raise DrKernelError(
            "tasks.source or tasks.eval_source is empty; expected generated, a folder, a file or hub:<id>"
        )
    if source == "handwritten" or source.startswith("handwritten:"):
        return read_handwritten(levels, _half(source))
    if source == "written":
        return read_written()
    if source.startswith("hub:"):
        return read_hub(source.removeprefix("hub:"))
    if source.endswith(".py"):
        return [replace(read_task(source), split=split if split in SPLITS else "test")]
    if source.endswith(tuple(READERS)):
        return read_records(source)
    if Path(source).is_dir() and (found := tables(Path(source))):
        if not (modules := python_files(Path(source))):
            return read_records(*found)
        if found[0].suffix != ".json":
            both = f"found {modules[0]} and {found[0]}"
            raise DrKernelError(f"tasks from {source}: {both}; expected Python files or tables, not both")
    if Path(source).is_dir():
        tasks = read_folder(source, levels, on_skip)
        return tasks if len(tasks) > 1 else [replace(t, split=split if split in SPLITS else "test") for t in tasks]
    expected = (
        "generated, handwritten[:development|final], written, a folder, a .jsonl, .json, .parquet or .py file, or "
        "hub:<id>"
    )
    raise DrKernelError(f"tasks from {source}: no such source; expected {expected}")
