"""The report of one or more studies: tables for people and programs, pictures, the page, a table in the terminal."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from drkernel.objective.intervals import Estimate, Paired
from drkernel.scaling import criteria, degenerate, measures, notes, page, plots
from drkernel.scaling.records import RESULTS, Record, latest, read
from drkernel.scaling.sections import (
    COSTS,
    PUBLISHED,
    Runs,
    Section,
    amount,
    by_criterion,
    differences,
    exact,
    sections,
)
from drkernel.scaling.study_folder import TASKS, labels, without_common_path
from drkernel.scaling.trials import Trials, aligned
from drkernel.types import DrKernelError

SHOWN = ("correct", "fast@1", "fast@1.2", "fast@1.5", "fast@2", "speedup", "honest")


def load(folders: Sequence[str | Path]) -> dict[str, list[Record]]:
    """The runs of some studies: one per folder, model and strategy, named after what tells them apart.

    Raises DrKernelError where a folder holds no judged turn, or is named twice.
    """
    return {name: records for name, (_, records) in _runs(folders).items()}


def _runs(folders: Sequence[str | Path]) -> dict[str, tuple[Path, list[Record]]]:
    """`load`, with the folder of each run."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    places = [Path(folder).resolve() for folder in folders]
    for number, folder in enumerate(map(Path, folders)):
        if places[number] in places[:number]:
            raise DrKernelError(f"config: compare: found {folder} twice, expected each study once")
        records = [record for record in latest(read(folder / RESULTS)) if record.counts and not record.degenerate]
        if not records:
            raise DrKernelError(f"{folder / RESULTS}: no judged turn in it; expected the folder of a study")
        for record in records:
            found.setdefault((str(folder), record.model, record.strategy), []).append(record)
    differs = [index for index in range(3) if len({key[index] for key in found}) > 1] or [2]
    if len({key[1:] for key in found}) == len(found):
        differs = [index for index in differs if index > 0]
    names = [" · ".join(key[index] for index in differs) for key in found]
    return dict(zip(without_common_path(names), ((Path(key[0]), rows) for key, rows in found.items()), strict=True))


def write(folders: Sequence[str | Path], out: str | Path, title: str) -> None:
    """Leave index.html, table.md, table.csv and the plots of these studies in `out`.

    Raises DrKernelError where a folder holds no judged turn.
    """
    out, found = Path(out), _runs(folders)
    out.mkdir(parents=True, exist_ok=True)
    records, covered = {name: rows for name, (_, rows) in found.items()}, _covered(found)
    runs = aligned({name: Trials.of(rows) for name, rows in records.items()})
    parts = [*sections(Runs(runs, records, covered)), *degenerate.sections(folders)]
    told = _notes(found, covered, folders)
    (out / "index.html").write_text(page.render(records, title, sources(folders), told), encoding="utf-8")
    (out / "table.md").write_text(_markdown(title, records, parts, told), encoding="utf-8")
    with open(out / "table.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [("section", "run", "key", "measure", "value", "low", "high", "samples"), *_lines(parts)]
        )
    plots.draw(runs, records, out)


def show(folders: Sequence[str | Path], console: Console) -> None:
    """Print the measures of the runs, and how the others differ from the first at equal numbers of judge calls."""
    found = _runs(folders)
    runs = {name: Trials.of(rows) for name, (_, rows) in found.items()}
    records = {name: rows for name, (_, rows) in found.items()}
    for note in _notes(found, _covered(found), folders):
        console.print(note, markup=False)
    console.print(_rich("best of history", SHOWN, {name: measures.summary(run) for name, run in runs.items()}))
    if columns := {f"{name}, {key}": row for name, key, row in by_criterion(records)}:
        console.print(_rich("two criteria", PUBLISHED, columns))
    if len(runs) > 1:
        changes = {f"{name}, {at}": row for name, at, row in differences(runs, ["calls"])}
        title = f"paired with {next(iter(runs))} at equal judge calls"
        console.print(_rich(title, [name for name in SHOWN if name != "honest"], changes))


def _covered(found: dict[str, tuple[Path, list[Record]]]) -> dict[str, Estimate]:
    """How many tasks each run has completions for; `samples` is how many its study has."""
    completed = {name: {record.task for record in rows} for name, (_, rows) in found.items()}
    table = {}
    for name, (folder, _) in found.items():
        study = {task["id"] for task in _tasks(folder)}
        study |= {task for other, tasks in completed.items() if found[other][0] == folder for task in tasks}
        table[name] = exact(len(completed[name]), len(study - set(degenerate.tasks(folder))))
    return table


def _notes(
    found: dict[str, tuple[Path, list[Record]]], covered: dict[str, Estimate], folders: Sequence[str | Path]
) -> list[str]:
    """What a reader must know before the numbers, a sentence each."""
    records = {name: rows for name, (_, rows) in found.items()}
    lacking = [*_missing(covered), *notes.short_trials(found), *_not_judged(folders)]
    return [*lacking, *_decided_by(records), *degenerate.notes(folders), *notes.unlike_tasks([*map(Path, folders)])]


def _missing(covered: dict[str, Estimate]) -> list[str]:
    """What the runs lack, a sentence each."""
    lacks = {name: (found.samples - int(found.value), found.samples) for name, found in covered.items()}
    return [
        f"{name}: {n} of {all_} tasks {'has' if n == 1 else 'have'} no completion"
        for name, (n, all_) in lacks.items()
        if n
    ]


def _not_judged(folders: Sequence[str | Path]) -> list[str]:
    """On how many completions of each study the judge failed, a sentence each. These count nowhere else."""
    said = []
    for name, folder in zip(labels(folders), map(Path, folders), strict=True):
        rows = latest(read(folder / RESULTS))
        if failed := sum(not record.counts for record in rows):
            said.append(f"{name}: the judge failed on {failed} of {len(rows)} completions; they are not counted")
    return said


def _decided_by(records: dict[str, list[Record]]) -> list[str]:
    """Which runs KernelBench's criterion decides, a sentence each."""
    return [f"{name}: judged by KernelBench's criterion" for name, rows in records.items() if criteria.decides(rows)]


def _rich(title: str, names: Sequence[str], rows: dict[str, dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("run", *names):
        table.add_column(column, justify="right" if table.columns else "left")
    for run, row in rows.items():
        table.add_row(run, *(text(name, row.get(name)).replace(" [", "\n\\[") for name in names))
    return table


def percent(x: float) -> str:
    """Halves are rounded up, as on the page.

    >>> percent(0.0625), percent(float("nan"))
    ('6.3', '-')
    """
    return f"{math.floor(1000 * x + 0.5) / 10:.1f}" if math.isfinite(x) else "-"


def text(measure: str, found: Estimate | Paired | None) -> str:
    """A number and its interval as people read them.

    >>> text("fast@1.2", Estimate(0.525, 0.43, 0.62, 40)), text("speedup", Estimate(1.5, 1.25, 1.75, 40))
    ('52.5% [43.0, 62.0]', '1.50x [1.25, 1.75]')
    >>> text("fast@1.2", Paired(0.1, -0.05, 0.25, 0.3, 0.2, 40))
    '+10.0 [-5.0, +25.0]'
    >>> text("tasks", Estimate(30, math.nan, math.nan, 32))
    '30 of 32'
    """
    if found is None or not math.isfinite(found.value):
        return "-"
    if measure == "turns":
        return amount(found.value)
    if measure == "tasks":
        assert isinstance(found, Estimate)
        return f"{found.value:.0f} of {found.samples}" if found.value < found.samples else str(found.samples)
    numbers = (found.value, found.low, found.high)
    if measure.endswith("speedup"):
        value, low, high = (f"{x:.2f}" for x in numbers)
        value += "x"
    elif measure in COSTS:
        value, low, high = map(amount, numbers)
    elif isinstance(found, Paired):
        value, low, high = (("+" if x >= 0 else "") + percent(x) for x in numbers)
    else:
        value, low, high = map(percent, numbers)
        value += "%"
    return f"{value} [{low}, {high}]" if math.isfinite(found.low) and found.low < found.high else value


def _markdown(title: str, records: dict[str, list[Record]], sections: Sequence[Section], notes: Sequence[str]) -> str:
    rows = [record for run in records.values() for record in run]
    tasks, devices = {record.task for record in rows}, sorted({r.verdict.device for r in rows if r.verdict.device})
    facts = [f"{len(tasks)} tasks", f"{len(records)} runs", f"{len(rows)} judged turns", *devices]
    parts = [f"# {title}", " · ".join(facts), *notes]
    for heading, note, names, table in sections:
        keyed = any(key for _, key, _ in table)
        names = [name for name in names if any(name in row for _, _, row in table)]
        shared = len({name.rpartition("/")[0] for name in names}) == 1
        head = ["run", *([""] if keyed else []), *(name.split("/")[-1] if shared else name for name in names)]
        lines = [head, ["---", *(["---"] if keyed else []), *("---:" for _ in names)]]
        lines += [
            [_cell(run), *([_cell(key)] if keyed else []), *(text(n, row.get(n)) for n in names)]
            for run, key, row in table
        ]
        parts += [f"## {heading}", note, "\n".join("| " + " | ".join(line) + " |" for line in lines)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _lines(sections: Sequence[Section]) -> Iterator[tuple[Any, ...]]:
    for heading, _, _, table in sections:
        for run, key, row in table:
            for measure, found in row.items():
                samples = found.tasks if isinstance(found, Paired) else found.samples
                yield heading, run, key, measure, found.value, found.low, found.high, samples


def sources(folders: Sequence[str | Path]) -> dict[str, str]:
    """The reference module of each task that the studies kept."""
    return {task["id"]: task["source"] for folder in folders for task in _tasks(folder)}


def _tasks(folder: str | Path) -> list[dict[str, Any]]:
    """The tasks that a study kept; none where it kept none."""
    path = Path(folder) / TASKS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.strip()]
