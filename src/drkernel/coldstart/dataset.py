"""A set of trajectories as a parquet file: tasks drawn, some of them judged, and what is written of them.

Judged tasks give trajectories of several turns, with the judge's feedback. All other tasks give trajectories of one
turn, whose solution is right by construction: drawing it costs milliseconds, a verdict half a second.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from drkernel.coldstart.counts import Counts
from drkernel.coldstart.trajectories import (
    SCHEMA,
    JudgedSolution,
    draw_solutions,
    draw_unjudged,
    in_canonical_form,
    judge_solutions,
    record,
    unjudged_record,
)
from drkernel.config import Judged
from drkernel.tasks.generators import generate
from drkernel.training.judging import make_judge, measured_on
from drkernel.training.processes import spread
from drkernel.training.progress import Progress
from drkernel.types import DrKernelError, Task

ROW_GROUP = 1000
"""Records that are written together."""


@dataclass(frozen=True)
class Options:
    """What a set is made of."""

    tasks: int
    """How many tasks are judged ..."""
    unjudged: int
    """... and how many more are not."""
    split: str
    seed: int
    """Of tasks and draws."""
    generator: str
    """What draws the tasks (`tasks.generators.GENERATORS`)."""
    dtypes: Sequence[str]
    turns: int
    """Of a trajectory of a judged task."""
    trajectories: int
    """Per judged task."""
    unjudged_trajectories: int
    """Per task that is not judged."""
    mistakes: int
    """Mistaken solutions that are judged per task."""
    fused_share: float
    """Of the best solutions."""
    plain: bool
    """Whether solutions have one style."""
    families: Sequence[str] | None = None
    """Of the generator; None: all. One that is named twice has two shares."""
    canonical: bool = False
    """Whether messages are in canonical form, so that a training need not find it."""


@dataclass(frozen=True)
class Made:
    """What became of a set."""

    counts: Counts
    """Of the judged tasks' trajectories."""
    usable: int
    refused: int
    """By the judge."""
    unjudged: int

    @property
    def lines(self) -> list[str]:
        said = [f"{self.counts.trajectories} trajectories of {self.usable} tasks"]
        said.append(f"{self.refused} tasks refused by the judge")
        if self.unjudged:
            said.append(f"more of {self.unjudged} tasks that nobody judged; the tables do not count them")
        return said


def make(path: Path, options: Options, config: Any, progress: Progress) -> Made:
    """Judges, draws and writes a set. What was judged before is kept in `path`.verdicts.jsonl and not judged again.

    config: a Config; its judge judges.

    Raises DrKernelError where all tasks are refused, or where the verdicts there are of another device.
    """
    number = options.tasks + options.unjudged
    drawn = generate(options.split, number, options.seed, options.families, options.dtypes, options.generator)
    tasks, others = drawn[: options.tasks], drawn[options.tasks :]
    verdicts = path.with_name(f"{path.name}.verdicts.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    expect_same_device(verdicts, config)
    with make_judge(config) as judge:
        bar = progress.bar("judging solutions", None)
        judged = judge_solutions(tasks, judge, verdicts, options.mistakes, bar, options.plain)
    usable = [task for task in tasks if task.id in judged]
    if not usable:
        raise DrKernelError(f"{path}: the judge refused all {len(tasks)} tasks; see {verdicts}")
    counts, answered = Counts(), progress.bar("answering tasks", len(others))
    rest = unjudged_records(others, options, answered)
    first = counts.seen(judged_records(usable, judged, options))
    write(path, itertools.chain(map(in_canonical_form, first) if options.canonical else first, rest))
    return Made(counts, len(usable), len(tasks) - len(usable), len(others))


def expect_same_device(path: Path, config: Judged) -> None:
    """Raises DrKernelError where verdicts that are kept were measured on another device: speed-ups would be mixed."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    devices = {json.loads(line)["verdict"]["device"] for line in lines if line.endswith("}")} - {""}
    kind, _, names = (now := measured_on(config)).partition(":")
    if others := sorted(devices - {f"{kind}:{name}" for name in names.split(", ")}):
        raise DrKernelError(f"{path}: has verdicts of {', '.join(others)}, expected {now}; choose another file")


def judged_records(
    tasks: Sequence[Task], judged: dict[str, list[JudgedSolution]], options: Options
) -> Iterator[tuple[Task, dict[str, Any]]]:
    """The trajectories of every judged task."""
    for task in tasks:
        draw = random.Random(f"{options.seed}/{task.id}")
        for number in range(options.trajectories):
            drawn = draw_solutions(judged[task.id], options.turns, options.fused_share, draw)
            yield task, record(task, drawn, number)


def unjudged_records(tasks: Sequence[Task], options: Options, progress: Any = None) -> Iterator[dict[str, Any]]:
    """The trajectories of tasks that are not judged, in their order; every core answers some."""
    for rows in spread(functools.partial(_answered, options=options), tasks):
        yield from rows
        if progress:
            progress(1)


def _answered(task: Task, options: Options) -> list[dict[str, Any]]:
    draw = random.Random(f"{options.seed}/{task.id}")
    drawn = (
        draw_unjudged(task, options.fused_share, draw, options.plain) for _ in range(options.unjudged_trajectories)
    )
    rows = [unjudged_record(task, solution, number) for number, solution in enumerate(drawn) if solution]
    return [in_canonical_form(row) for row in rows] if options.canonical else rows


def write(path: Path, rows: Iterable[dict[str, Any]], schema: pyarrow.Schema = SCHEMA) -> None:
    """A parquet file that is either whole or not there."""
    temporary, waiting = path.with_name(f"{path.name}.tmp"), []
    with parquet.ParquetWriter(temporary, schema, compression="zstd") as file:
        for row in rows:
            waiting.append(row)
            if len(waiting) == ROW_GROUP:
                file.write_table(pyarrow.Table.from_pylist(waiting, schema))
                waiting = []
        file.write_table(pyarrow.Table.from_pylist(waiting, schema))
    os.replace(temporary, path)
