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

_LEVEL = re.compile(r"level[ _-]?(\d+)", re.IGNORECASE)
_PROBLEM = re.compile(r"(\d+)_(.+)\.py")
_REQUIRED = ("Model", "get_inputs", "get_init_inputs")
SPLIT_NAMES = {split: split for split in SPLITS} | {"val": "validation", "valid": "validation"}
"""The names that a split may have: of a folder, of a part of a hub data set, in a record that is not of our schema."""
_NAMED = 5
"""Of so many files that are not read a message has the names."""


def read_task(path: str | Path, task_id: str | None = None) -> Task:
    """One task file. A module-level dict literal `SMALL` becomes `Task.small` and leaves the source.

    The precision follows the dtypes (`tasks.precision`).

    Raises:
        DrKernelError: no such file, a syntax error, or `Model`, `get_inputs` or `get_init_inputs` is not defined.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows editors begin files with a mark
    except FileNotFoundError:
        raise DrKernelError(f"task file {path}: no such file; expected a module in KernelBench's format") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DrKernelError(f"task file {path}: {type(error).__name__}: {error}") from error
    task = parse_task(text, task_id or f"file/{path.stem}", f"task file {path}")
    return with_precision(replace(task, info={"file": path.name}))


def parse_task(text: str, task_id: str, where: str = "task") -> Task:
    """The text of a task file, which is parsed and not executed; the precision stays `ieee`.

    where: what errors call the text.

    Raises:
        DrKernelError: a syntax error, or `Model`, `get_inputs` or `get_init_inputs` is not defined.
    """
    try:
        tree = ast.parse(text, where)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DrKernelError(f"{where}: {type(error).__name__}: {error}") from error
    defined = {name for node in tree.body for name in _names(node)}
    if missing := [name for name in _REQUIRED if name not in defined]:
        raise DrKernelError(f"{where}: does not define {missing[0]!r}")
    source, small = _without_small(where, text, tree)
    return Task(id=task_id, source=source, small=small)


def not_a_module(source: str, entry_point: str = "Model") -> str:
    """What keeps a source from being a task, in words, or nothing. It is parsed and not executed.

    >>> not_a_module("def (")
    'is no Python: line 1: invalid syntax'
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return f"is no Python: line {error.lineno}: {error.msg}"
    except ValueError as error:
        return f"is no Python: {error}"
    defined = {name for node in tree.body for name in _names(node)}
    missing = [name for name in (entry_point, *_REQUIRED[1:]) if name not in defined]
    return f"does not define {missing[0]!r}" if missing else ""


def write_task(task: Task, path: str | Path) -> None:
    """Writes a task as a file that `read_task` gives back: the source, then `SMALL`."""
    small = "" if task.small is None else f"\nSMALL = {task.small!r}\n"
    Path(path).write_text(task.source.rstrip("\n") + "\n" + small, encoding="utf-8")


def read_folder(
    folder: str | Path, levels: Sequence[int] | None = None, on_skip: Callable[[str], None] | None = None
) -> list[Task]:
    """The problems of `folder/level*/` or `folder/KernelBench/level*/`, by number; other folders by file name.

    Folders `train`, `validation` (or `val`) and `test` inside state the splits of what is in them; else splits go by
    hash of the id, level by level (`splits.share_out`). Ids are `kernelbench/level1/19`, so that they do not depend on
    where the folder lies; a file whose name has no number has its name in place of it. Names that begin with `_` or `.`
    are not read. With `on_skip`, broken files are skipped, and it is called with one line about each.

    Raises:
        DrKernelError: no such folder; two files of one id; or, without `on_skip`, broken files or files in no folder
            that is read, all of which it names.
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


def python_files(folder: Path) -> list[Path]:
    """All Python files below a folder, but for names that begin with `_` or `.`, of files and of folders."""
    found = (path for path in folder.rglob("*.py") if path.is_file())
    return sorted(path for path in found if not any(part[0] in "_." for part in path.relative_to(folder).parts))


def _with_splits(folder: Path, levels: Sequence[int] | None, broken: list[str]) -> list[Task]:
    """The tasks of a folder with their splits. What is the matter with other files is added to `broken`."""
    inner = sorted(path for path in folder.iterdir() if path.is_dir() and path.name.lower() in SPLIT_NAMES)
    if stated := {path: SPLIT_NAMES[path.name.lower()] for path in inner}:
        if twice := [split for split in SPLITS if [*stated.values()].count(split) > 1]:
            names = " and ".join(str(path) for path in inner if stated[path] == twice[0])
            raise DrKernelError(f"task folder {folder}: {names} both state the split {twice[0]}; expected one folder")
        _refuse_others(folder, [file for path in inner for file in python_files(path)], broken)
        in_order = sorted(stated, key=lambda path: SPLITS.index(stated[path]))
        parts = {stated[path]: _read(path, levels, broken) for path in in_order}
        return [replace(t, id=f"{split}/{t.id}", split=split) for split, tasks in parts.items() for t in tasks]
    tasks = _read(folder, levels, broken)
    splits: dict[str, str] = {}
    for level in {task.level for task in tasks}:
        splits |= share_out(task.id for task in tasks if task.level == level)
    return [replace(task, split=splits[task.id]) for task in tasks]


def _read(folder: Path, levels: Sequence[int] | None, broken: list[str]) -> list[Task]:
    root = folder / "KernelBench" if (folder / "KernelBench").is_dir() else folder
    of_level = {
        path: match for path in sorted(root.iterdir()) if path.is_dir() and (match := _LEVEL.fullmatch(path.name))
    }
    problems = {path: _problems(path) for path in of_level}
    readers: list[tuple[Path, Callable[[], Task]]] = []
    for inner, match in of_level.items():
        if levels is None or int(match[1]) in levels:
            readers += [(path, partial(_problem, path, number, int(match[1]))) for number, path in problems[inner]]
    looked_at = [path for each in problems.values() for _, path in each]
    if not looked_at and levels is None:
        root = folder
        looked_at = [path for path in python_files(folder) if path.parent == folder]
        readers = [(path, partial(read_task, path)) for path in looked_at]
    _refuse_others(root, looked_at, broken)
    tasks: dict[str, tuple[Task, Path]] = {}
    for path, read in readers:
        try:
            task = read()
        except DrKernelError as error:
            broken.append(str(error))
            continue
        if task.id in tasks:
            found = f"{tasks[task.id][1]} and {path} are both {task.id!r}"
            raise DrKernelError(f"task folder {folder}: {found}; expected one file for each number of a level")
        tasks[task.id] = task, path
    return [task for task, _ in tasks.values()]


def _refuse_others(root: Path, known: Sequence[Path], broken: list[str]) -> None:
    """Adds one line to `broken` where Python files below `root` are not among the known ones, which are read."""
    others = sorted(set(python_files(root)) - set(known))
    if others:
        names = ", ".join(str(path) for path in others[:_NAMED])
        names += f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        expected = "expected level1/NAME.py or NAME.py, or either of them in train/, validation/ and test/"
        broken.append(f"{names}: in none of the folders that are read, {expected}")


def _problems(folder: Path) -> list[tuple[int | None, Path]]:
    """(number, path) of the files of a level, by number; those without a number come last, by name."""
    paths = [path for path in python_files(folder) if path.parent == folder]
    numbers = {path: int(match[1]) if (match := _PROBLEM.fullmatch(path.name)) else None for path in paths}
    by_number = sorted(paths, key=lambda path: (numbers[path] is None, numbers[path] or 0, path.name))
    return [(numbers[path], path) for path in by_number]


def _problem(path: Path, number: int | None, level: int) -> Task:
    task = read_task(path, f"kernelbench/level{level}/{path.stem if number is None else number}")
    match = _PROBLEM.fullmatch(path.name)
    stated = {"problem_id": number, "name": match[2]} if match else {"name": path.stem}
    noted = {key: value for key, value in task.info.items() if key != "file"}
    return replace(task, level=level, family=f"level{level}", info={**stated, **noted})


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _without_small(where: str, text: str, tree: ast.Module) -> tuple[str, dict[str, int] | None]:
    node = next((node for node in tree.body if isinstance(node, ast.Assign) and _names(node) == ["SMALL"]), None)
    if node is None:
        return text, None
    try:
        small = ast.literal_eval(node.value)
    except ValueError:
        small = None
    if not isinstance(small, dict) or not all(isinstance(k, str) and type(v) is int for k, v in small.items()):
        raise DrKernelError(f"{where}: line {node.lineno}: SMALL must be a dict literal of names and ints")
    lines = text.splitlines(keepends=True)
    source = "".join(lines[: node.lineno - 1] + lines[node.end_lineno :])
    return source.rstrip("\n") + "\n", small
