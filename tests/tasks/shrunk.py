"""The handwritten tasks at the sizes that the judge finds for them. A process shrinks each once.

Tests that ask for many are of the group `shrinking`, so that it is one process.
"""

import functools
from dataclasses import replace

import pytest

from drkernel.judge.trusted.sizes.shrink import fit
from drkernel.tasks.handwritten import read_handwritten
from drkernel.types import Task

shrinking = pytest.mark.xdist_group("shrinking")
UNSHRUNK = {task.info["name"]: replace(task, small=None) for task in read_handwritten()}


@functools.cache
def shrunk(name: str) -> Task:
    return fit(UNSHRUNK[name])
