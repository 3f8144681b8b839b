"""Who holds how much of a GPU's memory, across all examiners of a machine. Runs in an examiner's process.

A file has a row for each examination that holds memory or waits for it, in the order in which they came. Whoever waits
gets its share when all before it have theirs and there is room. Rows of processes that have died do not count.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import torch

from drkernel.judge.devices.cuda.gpu_lock import GpuBusy, GpuUnhealthy, shared_file, shared_path
from drkernel.judge.trusted.sizes.footprint import GIB, Footprint
from drkernel.types import DrKernelError, Task

T = TypeVar("T")

_POLL_S = 0.005

Row = tuple[int, int, int, bool]
"""Process, number within it, bytes, and whether they are held."""


class MemoryLedger:
    """The ledger of one GPU.

    Args:
        uuid: of the GPU.
        limit: bytes that all may hold together.
    """

    def __init__(self, uuid: object, limit: int):
        self.limit = limit
        self._path = shared_path(uuid, "memory.json")
        self._number = 0

    @contextlib.contextmanager
    def hold(self, size: int) -> Iterator[float]:
        """Holds so many bytes, at most the limit, once there is room. Yields the seconds that it waited."""
        self._number += 1
        row, began = (os.getpid(), self._number, min(size, self.limit)), time.monotonic()
        self._update(add=row)
        try:
            while not self._granted(row):
                time.sleep(_POLL_S)
            yield time.monotonic() - began
        finally:
            self._update(remove=row)

    def _granted(self, row: tuple[int, int, int]) -> bool:
        rows = self._update()
        return any(held and tuple(first) == row for *first, held in rows)

    def _update(self, add: tuple[int, int, int] | None = None, remove: tuple[int, int, int] | None = None) -> list[Row]:
        """Adds or removes a row, and grants what there is room for. The rows then."""
        with shared_file(self._path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            rows = [tuple(row) for row in _read(file.read()) if Path(f"/proc/{row[0]}").exists()]
            rows = [row for row in rows if row[:3] != remove] + ([(*add, False)] if add else [])
            rows = _grant(rows, self.limit)
            file.seek(0)
            file.truncate()
            file.write(json.dumps(rows))
        return rows


def _read(text: str) -> list[list]:
    try:
        return json.loads(text) if text else []
    except json.JSONDecodeError:
        return []  # a process died while it wrote; whoever holds memory without a row may have company


def _grant(rows: list[tuple], limit: int) -> list[Row]:
    """The rows with those that may hold their bytes marked.

    >>> _grant([(1, 1, 60, True), (2, 1, 50, False), (3, 1, 10, False)], 100)
    [(1, 1, 60, True), (2, 1, 50, False), (3, 1, 10, False)]
    >>> _grant([(2, 1, 50, False), (3, 1, 10, False)], 100)
    [(2, 1, 50, True), (3, 1, 10, True)]
    """
    used, waiting, found = sum(size for *_, size, held in rows if held), False, []
    for process, number, size, held in rows:
        fits = held or (not waiting and used + size <= limit)
        used += size if fits and not held else 0
        waiting = waiting or not fits
        found.append((process, number, size, fits))
    return found


def expect_room(task: Task, needs: Footprint, limit: int) -> None:
    """Raises DrKernelError where a task needs more bytes of the GPU than all examinations may take."""
    if needs.least > limit:
        needed, most = needs.least / GIB, limit / GIB
        text = f"it needs {needed:.1f} GiB of the GPU ({needs}), and examinations may take {most:.1f} GiB"
        raise DrKernelError(f"task {task.id}: {text} (judge.memory_gib)")


def expect_memory(exclusive: bool, work: Callable[[], T]) -> T:
    """What `work` returns. Where the GPU's memory gives out here, in the trusted process, neither task nor submission
    is to blame.

    Raises:
        GpuBusy: it gives out, and others use the GPU, too.
        GpuUnhealthy: it gives out although the GPU is held exclusively.
    """
    try:
        return work()
    except (torch.OutOfMemoryError, DrKernelError) as error:
        found = _out_of_memory(error)
        if not found:
            raise
        raise (GpuUnhealthy if exclusive else GpuBusy)(f"no room is left on the GPU: {found}") from error


def _out_of_memory(error: BaseException) -> str:
    """The allocator's message, where it is the cause of an error."""
    while error.__cause__:
        error = error.__cause__
    return str(error).partition(" Process")[0] if isinstance(error, torch.OutOfMemoryError) else ""


def expect_promised(memory: float) -> None:
    """A submission that has the GPU for itself is promised a fraction of its memory. Where less is free once its
    process has ended, others hold it, and the submission did not fail by itself.

    Raises:
        GpuUnhealthy: less is free.
    """
    free, total = torch.cuda.mem_get_info()
    promised = int(memory * total)
    if free < promised:
        raise GpuUnhealthy(f"{free / GIB:.1f} GiB were free of the {promised / GIB:.1f} GiB that are promised")
