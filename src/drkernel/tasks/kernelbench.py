"""Tasks from Python files: single ones, and folders in KernelBench's layout (`level1/19_ReLU.py`)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from drkernel.tasks.precision import with_precision
from drkernel.tasks.splits import SPLITS, share_out
from drkernel.types import DrKernelError, Task

_LEVEL = re.compile(r"level_?(\d+)")
_PROBLEM = re.compile(r"(\d+)_(.+)\.py")
_REQUIRED = ("Model", "get_inputs", "get_init_inputs")


def read_task(path: str | Path, task_id: str | None = None) -> Task:
    """One task file. A module-level dict literal `SMALL` becomes `Task.small` and leaves the source.

    The precision follows the dtypes (`tasks.precision`).

    Raises:
        DrKernelError: no such file, a syntax error, or `Model`, `get_inputs` or `get_init_inputs` is not defined.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError) as error:
        raise DrKernelError(f"task file {path}: {type(error).__name__}: {error}") from error
    defined = {name for node in tree.body for name in _names(node)}
    if missing := [name for name in _REQUIRED if name not in defined]:
        raise DrKernelError(f"task file {path}: does not define {missing[0]!r}")
    source, small = _without_small(path, text, tree)
    task = Task(id=task_id or f"file/{path.stem}", source=source, small=small, info={"file": path.name})
    return with_precision(task)


def write_task(task: Task, path: str | Path) -> None:
    """Writes a task as a file that `read_task` gives back: the source, then `SMALL`."""
    small = "" if task.small is None else f"\nSMALL = {task.small!r}\n"
    Path(path).write_text(task.source.rstrip("\n") + "\n" + small, encoding="utf-8")


def read_folder(
    folder: str | Path, levels: Sequence[int] | None = None, on_skip: Callable[[str], None] | None = None
) -> list[Task]:
    """The problems of `folder/level*/` or `folder/KernelBench/level*/`, by number; other folders by file name.

    Folders `train`, `validation` and `test` inside state the splits of what is in them; else splits go by hash of the
    id, level by level (`splits.share_out`). Ids are `kernelbench/level1/19`, so that they do not depend on where the
    folder lies. With `on_skip`, broken files are skipped, and it is called with one line about each.

    Raises:
        DrKernelError: no such folder, or broken files in it, all of which it names, and no `on_skip`.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DrKernelError(f"task folder {folder}: no such folder")
    broken: list[str] = []
    tasks = _with_splits(folder, levels, broken)
    if broken and on_skip is None:
        number = f"{len(broken)} files are no tasks" if len(broken) > 1 else "1 file is no task"
        expected = "expected tasks, or names that begin with _"
        raise DrKernelError(f"task folder {folder}: {number}: {'; '.join(broken)}; {expected}")
    if on_skip:
        for line in broken:
            on_skip(f"passed over: {line}")
    return tasks


def _with_splits(folder: Path, levels: Sequence[int] | None, broken: list[str]) -> list[Task]:
    """The tasks of a folder with their splits. What is the matter with other files is added to `broken`."""
    if stated := [split for split in SPLITS if (folder / split).is_dir()]:
        parts = {split: _read(folder / split, levels, broken) for split in stated}
        return [replace(t, id=f"{split}/{t.id}", split=split) for split, tasks in parts.items() for t in tasks]
    tasks = _read(folder, levels, broken)
    splits: dict[str, str] = {}
    for level in {task.level for task in tasks}:
        splits |= share_out(task.id for task in tasks if task.level == level)
    return [replace(task, split=splits[task.id]) for task in tasks]


def _read(folder: Path, levels: Sequence[int] | None, broken: list[str]) -> list[Task]:
    root = folder / "KernelBench" if (folder / "KernelBench").is_dir() else folder
    readers: list[Callable[[], Task]] = []
    for inner in sorted(path for path in root.iterdir() if path.is_dir()):
        match = _LEVEL.fullmatch(inner.name)
        if match and (levels is None or int(match[1]) in levels):
            problems = _problems(inner)
            readers += [partial(_problem, path, number, name, int(match[1])) for number, name, path in problems]
    if not readers and levels is None:
        paths = sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
        readers = [partial(read_task, path) for path in paths]
    tasks = []
    for read in readers:
        try:
            tasks.append(read())
        except DrKernelError as error:
            broken.append(str(error))
    return tasks


def _problems(folder: Path) -> list[tuple[int, str, Path]]:
    matches = [(_PROBLEM.fullmatch(path.name), path) for path in folder.glob("*.py")]
    return sorted((int(match[1]), match[2], path) for match, path in matches if match)


def _problem(path: Path, number: int, name: str, level: int) -> Task:
    task = read_task(path, f"kernelbench/level{level}/{number}")
    noted = {key: value for key, value in task.info.items() if key != "file"}
    return replace(task, level=level, family=f"level{level}", info={"problem_id": number, "name": name, **noted})


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _without_small(path: Path, text: str, tree: ast.Module) -> tuple[str, dict[str, int] | None]:
    node = next((node for node in tree.body if isinstance(node, ast.Assign) and _names(node) == ["SMALL"]), None)
    if node is None:
        return text, None
    try:
        small = ast.literal_eval(node.value)
    except ValueError:
        small = None
    if not isinstance(small, dict) or not all(isinstance(k, str) and type(v) is int for k, v in small.items()):
        raise DrKernelError(f"task file {path}: line {node.lineno}: SMALL must be a dict literal of names and ints")
    lines = text.splitlines(keepends=True)
    source = "".join(lines[: node.lineno - 1] + lines[node.end_lineno :])
    return source.rstrip("\n") + "\n", small
