"""Tasks in the manner of KernelBench's levels: single operators, fused chains, small networks.

A large language model wrote them one by one (docs/policies.md, "Written tasks"); no generator drew them.

Each is a file `level{n}/{nn}_{name}.py`, whose docstring begins with the family. They are for evaluation alone: none is
in the training split, and none is a composition of the generator. Below the docstring a file is written as people write
such problems, each in another style: docstrings, comments and type hints or none, sizes in capitals or not, before or
behind the model, as numbers, tuples or lists, modules or functions. Where the judge cannot shrink one, `SMALL` does.

There are 40, 40 and 20 of level 1, 2 and 3, in two halves of equal numbers. `development` has the odd numbers: look at
it while something is made. `final` has the even ones: look at it once, when all is decided. A new task gets the next
number of its level, so none changes its half.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from drkernel.tasks.loaders.kernelbench import read_task
from drkernel.types import Task

FOLDER = Path(__file__).parent
HALVES = ("final", "development")
"""By the remainder of a task's number by 2."""


def read_handwritten(levels: Sequence[int] | None = None, half: str | None = None) -> list[Task]:
    """The tasks by level and number, all in the test split; an id is `handwritten/level1/masked_softmax`.

    The file's docstring costs no tokens: it is in `info["about"]` and not in the source.

    Args:
        levels: those to keep; None keeps all.
        half: development or final; None takes both. `info["half"]` has it.
    """
    assert half in (None, *HALVES)
    found = sorted(FOLDER.glob("level[0-9]*/[0-9]*_*.py"))
    tasks = [_task(path) for path in found if levels is None or _level(path) in levels]
    return [task for task in tasks if half in (None, task.info["half"])]


def _level(path: Path) -> int:
    return int(path.parent.name.removeprefix("level"))


def _task(path: Path) -> Task:
    level, (number, name) = _level(path), path.stem.split("_", 1)
    task = read_task(path, f"handwritten/level{level}/{name}")
    docstring = ast.get_docstring(ast.parse(task.source)) or ""
    begins = re.fullmatch(r"([\w ]+): (.+)", docstring)
    assert begins, f"{path}: the docstring must be `family: about`"
    family, about = begins.groups()
    return replace(
        task,
        source=task.source.partition(f'"""{docstring}"""\n')[2].lstrip("\n"),
        split="test",
        level=level,
        family=family,
        info={"problem_id": int(number), "name": name, "about": about, "half": HALVES[int(number) % 2]},
    )
