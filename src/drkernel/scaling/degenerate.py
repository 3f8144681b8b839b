"""Degenerate tasks of a study: trivial outputs, such as a constant, would pass for right. They count in no figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from drkernel.objective.intervals import Estimate
from drkernel.scaling.records import RESULTS, Record, latest, read
from drkernel.scaling.study_folder import labels


def tasks(folder: str | Path) -> dict[str, list[Record]]:
    """The judged turns on each degenerate task of a study."""
    found: dict[str, list[Record]] = {}
    for record in latest(read(Path(folder) / RESULTS)):
        if record.counts and record.degenerate:
            found.setdefault(record.task, []).append(record)
    return dict(sorted(found.items()))


def notes(folders: Sequence[str | Path]) -> list[str]:
    """How many tasks of each study are degenerate, a sentence each."""
    said = []
    for name, folder in zip(labels(folders), map(Path, folders), strict=True):
        number, all_ = len(tasks(folder)), len({record.task for record in read(folder / RESULTS)})
        verb = "is" if number == 1 else "are"
        if number:
            said.append(
                f"{name}: {number} of {all_} tasks {verb} degenerate and count{'s' * (number == 1)} in no figure"
            )
    return said


def sections(
    folders: Sequence[str | Path],
) -> Iterator[tuple[str, str, Sequence[str], list[tuple[str, str, dict[str, Any]]]]]:
    """A section of a report, where a study has such tasks; see report.Section."""
    rows = [
        (name, f"{task}: {turns[0].degenerate}", _row(turns))
        for name, folder in zip(labels(folders), folders, strict=True)
        for task, turns in tasks(folder).items()
    ]
    if rows:
        yield "Degenerate tasks", "They count in no other table.", ("turns", "correct"), rows


def _row(turns: list[Record]) -> dict[str, Any]:
    right = sum(record.verdict.ok for record in turns) / len(turns)
    return {
        name: Estimate(x, math.nan, math.nan, len(turns)) for name, x in (("turns", len(turns)), ("correct", right))
    }
