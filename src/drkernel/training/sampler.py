"""Which tasks a step is about."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import torch

from drkernel.types import DrKernelError, Task

_TOGETHER = 16
"""Tasks that the judge is asked about side by side."""


class Checks(Protocol):
    def check_task(self, task: Task) -> None: ...


class Sampler:
    """Training tasks, in a fresh permutation each epoch: a pure function of (seed, how many were drawn).

    A task that the judge cannot use is reported once and passed over; none that it can is an error.
    """

    def __init__(self, tasks: list[Task], seed: int, judge: Checks, say: Callable[[str], None]):
        self.tasks, self._seed, self._judge, self._say = tasks, seed, judge, say
        self._unusable: dict[str, DrKernelError] = {}

    def draw(self, cursor: int, number: int) -> tuple[list[Task], int]:
        """The next usable tasks after `cursor` drawn ones, and how many are drawn then. The judge prepares them."""
        picked: list[Task] = []
        while len(picked) < number:
            drawn = [self._at(cursor + i) for i in range(number - len(picked))]
            cursor += len(drawn)
            picked += self.usable(drawn)
            if not picked and {task.id for task in self.tasks} <= self._unusable.keys():
                raise self._unusable[self.tasks[-1].id]
        return picked, cursor

    def usable(self, tasks: list[Task]) -> list[Task]:
        """Those that the judge can use; the judge prepares them. The others are told, each once."""
        with ThreadPoolExecutor(_TOGETHER) as together:
            errors = list(together.map(self._refusal, tasks))
        for task, error in zip(tasks, errors, strict=True):
            if error and task.id not in self._unusable:
                self._unusable[task.id] = error
                self._say(f"passed over: {error}")
        return [task for task, error in zip(tasks, errors, strict=True) if not error]

    def _at(self, cursor: int) -> Task:
        epoch, offset = divmod(cursor, len(self.tasks))
        order = torch.randperm(len(self.tasks), generator=torch.Generator().manual_seed(hash((self._seed, epoch))))
        return self.tasks[order[offset]]

    def _refusal(self, task: Task) -> DrKernelError | None:
        try:
            self._judge.check_task(task)
        except DrKernelError as error:
            return error
        return None
