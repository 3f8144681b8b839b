"""Judged trajectories of generated tasks as a parquet file that `stage=sft` trains on.

    python -m drkernel.coldstart --tasks 1000 --out trajectories.parquet
    python train.py stage=sft policy=qwen3_0.6b sft.data=trajectories.parquet

The columns are those of the paper's published cold-start set, and the messages are plain, for any policy's prompts
(`trajectories.SCHEMA`, `trajectories.record`). Verdicts are kept beside the file, in OUT.verdicts.jsonl, so that the
same command goes on where it was stopped, and one with more tasks judges the new ones alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow
from pyarrow import parquet
from rich.console import Console
from rich.table import Table

from drkernel.coldstart.trajectories import SCHEMA, JudgedSolution, draw_solutions, judge_solutions, record
from drkernel.config import ColdstartConfig, Config, JudgeConfig, judge_options
from drkernel.judge import Judge
from drkernel.judge.service import DEVICES, GPUS
from drkernel.tasks.families import DTYPES
from drkernel.tasks.generator import VERSION, generate
from drkernel.tasks.splits import SPLITS
from drkernel.training.judging import measured_on
from drkernel.training.progress import Progress, make_console
from drkernel.types import DrKernelError, Task

ROW_GROUP = 1000
"""Records that are written together."""
COLUMNS = 4
"""Operators in a row of the printed table."""
GAIN = 1.05
"""How much faster a turn has to be than the one before to count as a gain."""


def run(given: argparse.Namespace, console: Console) -> None:
    """Judge, draw, write, and print what was made."""
    tasks = generate(given.split, given.tasks, given.seed, dtypes=given.dtypes, version=given.generator)
    config = Config(seed=given.seed, judge=JudgeConfig(device=given.device, gpu=given.gpu, workers=given.workers))
    verdicts = given.out.with_name(f"{given.out.name}.verdicts.jsonl")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    expect_same_device(verdicts, measured_on(config.judge))
    with Progress(console) as progress, Judge(**judge_options(config)) as judge:
        judged = judge_solutions(tasks, judge, verdicts, given.mistakes, progress.bar("judging solutions", None))
    usable = [task for task in tasks if task.id in judged]
    if not usable:
        raise DrKernelError(f"--tasks {given.tasks}: the judge refused all of them; see {verdicts}")
    counts = Counts()
    write(given.out, counts.seen(records(usable, judged, given)))
    console.print(f"{given.out}: {counts.trajectories} trajectories of {len(usable)} tasks", highlight=False)
    console.print(f"{len(tasks) - len(usable)} tasks refused by the judge", highlight=False)
    for table in counts.tables():
        console.print(table)


def expect_same_device(path: Path, now: str) -> None:
    """Raises DrKernelError where verdicts that are kept were measured on another device: speed-ups would be mixed."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    devices = {json.loads(line)["verdict"]["device"] for line in lines if line.endswith("}")} - {""}
    kind, _, names = now.partition(":")
    if others := sorted(devices - {f"{kind}:{name}" for name in names.split(", ")}):
        raise DrKernelError(f"{path}: has verdicts of {', '.join(others)}, expected {now}; choose another --out")


def records(
    tasks: Sequence[Task], judged: dict[str, list[JudgedSolution]], given: argparse.Namespace
) -> Iterator[tuple[Task, dict[str, Any]]]:
    """The trajectories of every task, drawn as `stage=coldstart` draws them."""
    for task in tasks:
        draw = random.Random(f"{given.seed}/{task.id}")
        for number in range(given.trajectories):
            yield task, record(task, draw_solutions(judged[task.id], given.turns, given.fused_share, draw), number)


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """A parquet file that is either whole or not there."""
    temporary, waiting = path.with_name(f"{path.name}.tmp"), []
    with parquet.ParquetWriter(temporary, SCHEMA, compression="zstd") as file:
        for row in rows:
            waiting.append(row)
            if len(waiting) == ROW_GROUP:
                file.write_table(pyarrow.Table.from_pylist(waiting, SCHEMA))
                waiting = []
        file.write_table(pyarrow.Table.from_pylist(waiting, SCHEMA))
    os.replace(temporary, path)


class Counts:
    """What the trajectories are like, counted while they pass."""

    def __init__(self) -> None:
        self.trajectories = 0
        self.lengths: list[int] = []  # of trajectories, in characters
        self.sources: dict[str, list[int]] = defaultdict(list)  # characters of the sources of each grade
        self.by_grade: dict[str, list[float | None]] = defaultdict(list)  # speed-ups
        self.by_turn: dict[int, list[float | None]] = defaultdict(list)
        self.gains: Counter[int] = Counter()
        self.operators: Counter[str] = Counter()

    def seen(self, rows: Iterable[tuple[Task, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
        """The same rows, counted."""
        for task, row in rows:
            self._count(task, row)
            yield row

    def _count(self, task: Task, row: dict[str, Any]) -> None:
        self.trajectories += 1
        self.lengths.append(sum(len(message["content"]) for message in row["messages"]))
        self.operators.update(set(operators(task)))
        before: float | None = None
        for turn, (grade, speedup) in enumerate(zip(row["grades"], row["speedups"], strict=True), 1):
            self.sources[grade].append(len(row["messages"][2 * turn - 1]["content"]))
            self.by_grade[grade].append(speedup)
            self.by_turn[turn].append(speedup)
            self.gains[turn] += turn > 1 and (speedup or 0.0) > GAIN * (before or 0.0)
            before = speedup

    def tables(self) -> list[Table]:
        return [self._by_grade(), self._by_turn(), self._by_length(), self._by_operator()]

    def _by_grade(self) -> Table:
        turns = sum(map(len, self.by_grade.values()))
        rows = []
        for grade, found in sorted(self.by_grade.items()):
            sizes = self.sources[grade]
            rows.append((grade, f"{len(found) / turns:.0%}", *_speed(found), f"{median(sizes):.0f}", str(max(sizes))))
        return _table("turns by grade", ("grade", "share", "right", "speed-up", "characters", "longest"), rows)

    def _by_turn(self) -> Table:
        rows = []
        for turn, found in sorted(self.by_turn.items()):
            gain = f"{self.gains[turn] / len(found):.0%}" if turn > 1 else ""
            rows.append((str(turn), *_speed(found), gain))
        return _table("gain by turn", ("turn", "right", "speed-up", f"faster than before (x {GAIN:g})"), rows)

    def _by_length(self) -> Table:
        sizes = sorted(self.lengths)
        shown = (sizes[int(share * (len(sizes) - 1))] for share in (0.0, 0.5, 0.95, 1.0))
        row = tuple(f"{size:,}" for size in shown)
        return _table("characters of a trajectory", ("shortest", "median", "95 %", "longest"), [row])

    def _by_operator(self) -> Table:
        cells = [cell for name, number in self.operators.most_common() for cell in (name, str(number))]
        width = 2 * COLUMNS
        cells += [""] * (-len(cells) % width)
        rows = [tuple(cells[start : start + width]) for start in range(0, len(cells), width)]
        return _table("trajectories by operator", ("operator", "") * COLUMNS, rows)


def operators(task: Task) -> list[str]:
    """The operators of a generated task, whose id names them: `generated/bias+gelu/1a2b3c4d`.

    >>> operators(Task("generated/bias+gelu/1a2b3c4d", ""))
    ['bias', 'gelu']
    """
    return task.id.split("/")[1].split("+")


def _speed(speedups: Sequence[float | None]) -> tuple[str, str]:
    """The share of right ones, and their median speed-up."""
    right = [speedup for speedup in speedups if speedup is not None]
    return f"{len(right) / len(speedups):.0%}", f"{median(right):.2f}" if right else ""


def _table(title: str, columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 or column == columns[0] else "right")
    for row in rows:
        table.add_row(*row)
    return table


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line; defaults are those of `stage=coldstart`."""
    defaults = ColdstartConfig()
    parser = argparse.ArgumentParser(
        prog="python -m drkernel.coldstart", description=(__doc__ or "").partition("\n")[0]
    )
    option = parser.add_argument
    option("--tasks", type=int, required=True, help="how many tasks")
    option("--out", type=Path, required=True, help="the parquet file")
    option("--split", choices=SPLITS, default="train", help="whose tasks; train")
    option("--seed", type=int, default=0, help="of tasks, draws and hidden inputs; 0")
    option("--generator", type=int, default=VERSION, help=f"version of the generator; {VERSION}")
    option("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES[:1]), help="of inputs and weights; float32")
    option("--turns", type=int, default=3, help="per trajectory; 3")
    option("--trajectories", type=int, default=defaults.trajectories, help="per task; 8")
    option("--mistakes", type=int, default=defaults.mistakes, help="mistaken solutions per task; 2")
    option("--fused-share", type=float, default=defaults.fused_share, help="of the best solutions; 0.15")
    option("--device", choices=DEVICES, default="auto", help="what measures; auto")
    option("--gpu", choices=GPUS, default="H200", help="what the simulated device models; H200")
    option("--workers", type=int, help="processes that judge")
    given = parser.parse_args(words)
    for name in ("tasks", "turns", "trajectories"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} is {getattr(given, name)}, expected at least 1")
    return given


def main(words: Sequence[str] | None = None) -> int:
    given, console = arguments(words), make_console()
    try:
        run(given, console)
    except DrKernelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
