"""What a reader of a report must know of its studies: what they lack, and what differs in them. A sentence each."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from drkernel.config import ScalingConfig
from drkernel.scaling.records import Record
from drkernel.scaling.strategies import Strategy
from drkernel.scaling.study_folder import CONFIG, kept_tasks, labels


def short_trials(runs: dict[str, tuple[Path, list[Record]]]) -> list[str]:
    """How many trials of each run have fewer judge calls than its study asks for, where no limit or stop rule does it.

    runs: the folder and the records of each. Studies that kept no configuration, and tasks without any completion, are
    left out.
    """
    notes = []
    for name, (folder, records) in runs.items():
        options = _scaling(folder)
        if options is None or Strategy(options).may_stop:
            continue
        played = Counter((record.task, record.trial) for record in records)
        wanted = {(task, trial) for task, _ in played for trial in range(options.trials)} | set(played)
        calls = Strategy(options).calls
        if short := sum(played[trial] < calls for trial in wanted):
            why = "an interruption, a failure of the judge or a full context ended them, and they count as they are"
            notes.append(f"{name}: {short} of {len(wanted)} trials have fewer than {calls} judge calls; {why}")
    return notes


def unlike_tasks(folders: Sequence[Path]) -> list[str]:
    """Which tasks of one id are not the same in the first study and another one, and which studies share none."""
    if len(folders) < 2:
        return []
    first, *others = [{task.id: task.digest for task in kept_tasks(folder)} for folder in folders]
    notes, names = [], labels(folders)
    for name, other in zip(names[1:], others, strict=True):
        common = sorted(first.keys() & other.keys())
        pair = f"{name} and {names[0]}"
        if unlike := [task for task in common if first[task] != other[task]]:
            what = "of the same id differ in source, precision or sizes; they are paired all the same"
            notes.append(f"{pair}: {len(unlike)} of {len(common)} tasks {what}, e.g. {unlike[0]}")
        if first and other and not common:
            notes.append(f"{pair}: they have no task in common, so nothing is paired")
    return notes


def _scaling(folder: Path) -> ScalingConfig | None:
    """How a study spends its budget; None where it generates nothing, or kept no configuration."""
    path = folder / CONFIG
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    if found.get("solutions") or "scaling" not in found:
        return None
    known = {item.name for item in dataclasses.fields(ScalingConfig)}
    return ScalingConfig(**{name: value for name, value in found["scaling"].items() if name in known})
