"""Which tasks a step is about."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from drkernel.judge import JudgeProtocol
from drkernel.training.seeds import generator
from drkernel.types import DrKernelError, Task

_CONCURRENT = 16
"""Tasks that the judge checks at the same time."""


class Sampler:
    """Training tasks, in a fresh permutation each epoch: a pure function of (seed, how many were drawn).

    A task that the judge cannot use is logged once and passed over. It is an error if the judge can use none.
    """

    def __init__(self, tasks: list[Task], seed: int, judge: JudgeProtocol, log: Callable[[str], None]):
        self.tasks, self._seed, self._judge, self._log = tasks, seed, judge, log
        self._unusable: dict[str, DrKernelError] = {}

    def draw(self, cursor: int, number: int) -> tuple[list[Task], int]:
        """The next usable tasks after `cursor` drawn ones, and the number drawn after that. The judge prepares them."""
        picked: list[Task] = []
        while len(picked) < number:
            drawn = [self._at(cursor + i) for i in range(number - len(picked))]
            cursor += len(drawn)
            picked += self.usable(drawn)
            if not picked and {task.id for task in self.tasks} <= self._unusable.keys():
                raise self._unusable[self.tasks[-1].id]
        return picked, cursor

    def usable(self, tasks: list[Task]) -> list[Task]:
        """Those that the judge can use; it prepares them. The others are logged, each once."""
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            errors = list(pool.map(self._refusal, tasks))
        for task, error in zip(tasks, errors, strict=True):
            if error and task.id not in self._unusable:
                self._unusable[task.id] = error
                self._log(f"passed over: {error}")
        return [task for task, error in zip(tasks, errors, strict=True) if not error]

    def _at(self, cursor: int) -> Task:
        epoch, offset = divmod(cursor, len(self.tasks))
        order = torch.randperm(len(self.tasks), generator=generator(self._seed, epoch))
        return self.tasks[order[offset]]

    def _refusal(self, task: Task) -> DrKernelError | None:
        try:
            degenerate = self._judge.check_task(task)
        except DrKernelError as error:
            return error
        return DrKernelError(f"task {task.id}: degenerate: {degenerate}") if degenerate else None
