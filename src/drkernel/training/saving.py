"""When a checkpoint is written: at once, or behind the steps that follow (`trainer.save_async`).

Behind them, a copy of what is saved is made in the host's memory, and a thread writes it while training goes on. There
is one write at a time, and its collectives have a process group of their own, so that they cannot mix with those of a
step. A checkpoint gets its name when it is whole (training/checkpoint.py), so a run that is killed meanwhile resumes
from the one before.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch.distributed as dist

from drkernel.training.ranks import SINGLE, Ranks


class Saver:
    """Runs writes of checkpoints. Its methods are collective: all ranks must call them, in the same order."""

    def __init__(self, ranks: Ranks = SINGLE, in_background: bool = False):
        self.in_background = in_background
        self._ranks = ranks
        self._writing: Future[None] | None = None
        if in_background:
            self._pool = ThreadPoolExecutor(1, "checkpoint")
            if ranks.size > 1:
                self._ranks = dataclasses.replace(ranks, group=dist.new_group(backend="gloo"))

    def run(self, write: Callable[[Ranks], None]) -> None:
        """Calls write(ranks), which may use these ranks' collectives: at once, or in the background once the write
        before has ended. Raises what that one raised."""
        self.wait()
        if self.in_background:
            self._writing = self._pool.submit(write, self._ranks)
        else:
            write(self._ranks)

    def wait(self) -> None:
        """Until nothing is being written. Raises, on all ranks, what the write raised."""
        writing, self._writing = self._writing, None
        if writing:
            writing.result()

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.suppress(*([Exception] if kind else [])):  # the error that ends the run is the one to tell
            self.wait()
