"""Solutions made elsewhere, so that other systems' kernels stand under the same judge.

A folder, at any depth, or a single file:

    level_1_problem_3_sample_0_kernel.py        a run of KernelBench (runs/<name>/); its eval_results.json is ignored
    level1/gpt/problem_3/sample_0/kernel.py     the same, in folders
    level1/3_Batched_matrix_multiplication.py   named like the problem; 3.py will do
    softmax.py, a/b/c.py, a__b__c.py            named after a task: its name, the end of its id, or the whole id
    softmax_sample_2.py                         ... more than one solution of it
    *.json                                      {task: source}, {task: [source, ...]}, or a list of records
    *.jsonl                                     a record per line, a study's own results.jsonl among them

A record has a task (`task`, `task_id`, `id`; or `level` and `problem_id`), a source (`source`, `code`, `kernel`,
`answer`), and perhaps a number (`trial`, `sample`, `sample_id`). Sources may be Markdown with a block of code. A
completion of a study that had no code has no source here, either.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from drkernel.policy.code import PYTHON, fences, parses
from drkernel.types import DrKernelError, Task

_IN_RUN = re.compile(r".*level_?(\d+).*?problem_?(\d+)(?:.*sample_?(\d+))?")
_IN_LEVEL = re.compile(r"(?:^|/)level_?(\d+)/(\d+)(?:_[^/]*)?$")
_SAMPLE = re.compile(r"(.+?)[_.]sample_?(\d+)(?:_kernel)?")
_SUBMISSION = re.compile(r"^class\s+\w+New\b", re.MULTILINE)
_OF_KERNELBENCH = ("eval_results", "pass_at_k_results")
_KEYS = {
    "task": ("task", "task_id", "id", "problem"),
    "source": ("source", "code", "kernel", "answer"),
    "sample": ("trial", "sample", "sample_id"),
}


class Solution(NamedTuple):
    """One saved solution."""

    task: str
    """Id of the task."""
    trial: int
    """Which solution of the task, unique among them: the sample number where there is one and it is free."""
    source: str | None
    """None where a study's completion had no code."""
    origin: str
    """Where it was found: the path, and the line or key within the file."""


_Found = tuple[str, "int | None", "str | None", str]
"""Task id, sample number, source, origin."""


class _Unreadable(Exception):
    """Why a file or a record is none."""


def load(path: str | Path, tasks: Iterable[Task] = (), log: Callable[[str], None] = print) -> list[Solution]:
    """All solutions under a folder or in a file, in the order of paths with numbers in them as numbers.

    Args:
        tasks: what the solutions may be to; names of files and records are looked up among their ids, names and problem
            numbers. Where no task fits, a level and a number mean KernelBench's problem, and a record's task is taken
            for an id; a file that says neither is broken.
        log: is told of each broken file or record, with path and reason; the others are read all the same.

    Raises:
        DrKernelError: no such folder or file, or no solution in it.
    """
    path, index = Path(path), _Index(tasks)
    if not path.exists():
        raise DrKernelError(f"solutions {path}: no such folder or file")
    root = path if path.is_dir() else path.parent
    files = [path] if path.is_file() else sorted((f for f in path.rglob("*") if _counts(f, root)), key=_order)
    found: list[_Found] = []
    for file in files:
        try:
            for item in _solutions(file, file.relative_to(root).with_suffix("").as_posix(), index):
                found.append(item) if isinstance(item, tuple) else log(f"passed over: {item}")
        except (_Unreadable, OSError, ValueError) as error:
            log(f"passed over: {file}: {error}")
    if not found:
        raise DrKernelError(f"solutions {path}: no solutions found in {len(files)} files")
    return _numbered(found)


class _Index:
    """Tasks by everything that they may be called."""

    def __init__(self, tasks: Iterable[Task]):
        self._names: dict[str, set[str]] = defaultdict(set)
        self._problems: dict[tuple[int, int], set[str]] = defaultdict(set)
        for task in tasks:
            number, name = task.info.get("problem_id"), task.info.get("name")
            parts = task.id.split("/")
            names = {"/".join(parts[first:]) for first in range(len(parts))} | {task.id.replace("/", "__")}
            names |= {name or "", Path(task.info.get("file", "")).stem}
            names |= {f"{number}_{name}", f"{number:02}_{name}"} if isinstance(number, int) and name else set()
            for each in filter(None, names):
                self._names[each.casefold()].add(task.id)
            if task.level is not None and number is not None:
                self._problems[task.level, int(number)].add(task.id)

    def problem(self, level: int, number: int) -> str:
        return self._one(self._problems.get((level, number)), f"level {level}, problem {number}") or (
            f"kernelbench/level{level}/{number}"
        )

    def named(self, name: str) -> str | None:
        """The task that a name, or the end of a path, stands for."""
        parts = name.casefold().split("/")
        for first in range(len(parts)):
            if task := self._one(self._names.get("/".join(parts[first:])), name):
                return task
        return None

    @staticmethod
    def _one(ids: set[str] | None, name: str) -> str | None:
        if ids and len(ids) > 1:
            raise _Unreadable(f"{name!r} may be {', '.join(sorted(ids)[:3])}")
        return next(iter(ids)) if ids else None


def _counts(file: Path, root: Path) -> bool:
    """Whether a file in a folder may hold solutions."""
    hidden = any(part.startswith((".", "__pycache__")) for part in file.relative_to(root).parts)
    named = file.suffix in (".py", ".json", ".jsonl") and not file.name.startswith(_OF_KERNELBENCH)
    return named and not hidden and file.name != "__init__.py" and file.is_file()


def _order(file: Path) -> list:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(file))]


def _solutions(file: Path, name: str, index: _Index) -> Iterator[_Found | str]:
    """The solutions in a file; text says why a record is none."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        yield *_of_file(name, index), _code(text), str(file)
        return
    lines = enumerate(text.split("\n"), 1)  # splitlines would also split within strings
    records = ((f"line {n}", line) for n, line in lines if line.strip()) if file.suffix == ".jsonl" else _entries(text)
    for place, record in records:
        try:
            record = json.loads(record) if file.suffix == ".jsonl" else record
            yield *_of_record(record, index), f"{file}: {place}"
        except (_Unreadable, ValueError) as error:
            yield f"{file}: {place}: {error}"


def _entries(text: str) -> Iterator[tuple[str, Any]]:
    """The records of a JSON file, each with its place."""
    data = json.loads(text)
    if isinstance(data, list):
        yield from ((f"entry {number}", record) for number, record in enumerate(data))
    elif not isinstance(data, dict) or any(key in data for key in _KEYS["source"]):
        yield "the object", data
    else:
        for task, value in data.items():
            for source in value if isinstance(value, list) else [value]:
                yield repr(task), source if isinstance(source, dict) else {"task": task, "source": source}


def _of_file(name: str, index: _Index) -> tuple[str, int | None]:
    if found := _IN_RUN.match(name):
        level, number, sample = found.groups()
        return index.problem(int(level), int(number)), None if sample is None else int(sample)
    sample, named = None, _SAMPLE.fullmatch(name)
    if not index.named(name) and named:
        name, sample = named[1], int(named[2])
    if task := index.named(name):
        return task, sample
    if found := _IN_LEVEL.search(name):
        return index.problem(int(found[1]), int(found[2])), sample
    raise _Unreadable("none of the study's tasks has such a name")


def _of_record(record: Any, index: _Index) -> tuple[str, int | None, str | None]:
    if not isinstance(record, dict):
        raise _Unreadable(f"expected an object, found {type(record).__name__}")
    values = {what: next((record[key] for key in keys if key in record), None) for what, keys in _KEYS.items()}
    source = values["source"]
    without = source is None and "verdict" in record  # of a study
    if not without and not isinstance(source, str):
        raise _Unreadable(f"no source: expected text as one of {', '.join(_KEYS['source'])}")
    sample = values["sample"] if type(values["sample"]) is int else None
    if values["task"] is not None:
        task, nested = str(values["task"]), _IN_RUN.match(str(values["task"]))
        task = index.problem(int(nested[1]), int(nested[2])) if nested else index.named(task) or task
    elif str(record.get("level", "")).isdigit() and str(record.get("problem_id", "")).isdigit():
        task = index.problem(int(record["level"]), int(record["problem_id"]))
    else:
        raise _Unreadable(f"no task: expected one of {', '.join(_KEYS['task'])}, or level and problem_id")
    return task, sample, None if source is None else _code(source)


def _code(text: str) -> str:
    """A Python source as it is; of Markdown the last Python block with a submission, else the last one. A block in a
    docstring is part of its source."""
    if not text.strip():
        raise _Unreadable("it is empty")
    blocks = [block for language, block, _ in fences(text) if language in PYTHON]
    if not blocks or parses(text):
        return text
    if submissions := [block for block in blocks if _SUBMISSION.search(block)]:
        return submissions[-1]
    return text if _SUBMISSION.search(text) else blocks[-1]


def _numbered(found: list[_Found]) -> list[Solution]:
    """Trials: sample numbers where they are given and free, else the next free number."""
    taken: dict[str, set[int]] = defaultdict(set)
    trials: dict[int, int] = {}
    for place in sorted(range(len(found)), key=lambda place: found[place][1] is None):
        task, sample, _, _ = found[place]
        trials[place] = sample if sample is not None and sample not in taken[task] else _free(taken[task])
        taken[task].add(trials[place])
    return [Solution(task, trials[place], source, origin) for place, (task, _, source, origin) in enumerate(found)]


def _free(taken: set[int]) -> int:
    return next(number for number in range(len(taken) + 1) if number not in taken)
