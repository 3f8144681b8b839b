"""Tasks written by hand in the manner of KernelBench's levels: single operators, fused chains, small networks.

Each is a file `level{n}/{nn}_{name}.py`, whose docstring begins with the family. They are for evaluation alone: none is
in the training split, and none is a composition of the generator.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from drkernel.tasks.kernelbench import read_task
from drkernel.types import Task

FOLDER = Path(__file__).parent


def read_handwritten(levels: Sequence[int] | None = None) -> list[Task]:
    """The tasks by level and number, all in the test split; an id is `handwritten/level1/masked_softmax`.

    The docstring costs no tokens: it is in `info["about"]` and not in the source.
    """
    found = sorted(FOLDER.glob("level[0-9]*/[0-9]*_*.py"))
    return [_task(path) for path in found if levels is None or _level(path) in levels]


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
        info={"problem_id": int(number), "name": name, "about": about},
    )
