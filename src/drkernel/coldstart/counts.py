"""What the trajectories of a set are like: tables of grades, gains, lengths and operators."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from rich.table import Table

from drkernel.types import Task

COLUMNS = 4
"""Operators in a row of the printed table."""
GAIN = 1.05
"""How much faster a turn has to be than the one before to count as a gain."""


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
