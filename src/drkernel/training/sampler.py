"""Which tasks a step is about."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from drkernel.judge import JudgeProtocol, NotPrepared
from drkernel.training.ranks import SINGLE, Ranks
from drkernel.training.seeds import generator
from drkernel.types import DrKernelError, Task, WorkerLost

_CONCURRENT = 16
"""Tasks that a judge checks at the same time."""


class Sampler:
    """Training tasks, in a fresh permutation each epoch: a pure function of (seed, how many were drawn).

    Each node's judge prepares the tasks that are drawn. A task that cannot be used on one of the nodes is logged once
    and passed over by all of them. It is an error if none can be used. Where a judge itself fails, which says nothing
    of the task, WorkerLost is raised. The methods are collective: all ranks must call them, and get the same tasks.
    """

    def __init__(
        self,
        tasks: list[Task],
        seed: int,
        judge: JudgeProtocol,
        log: Callable[[str], None],
        *,
        too_long: Callable[[Task], str] = lambda task: "",
        ranks: Ranks = SINGLE,
    ):
        """too_long: says why the policy cannot take a task, or nothing. It is asked before the judge."""
        self.tasks, self._seed, self._judge, self._log = tasks, seed, judge, log
        self._too_long, self._ranks = too_long, ranks
        self._unusable: dict[str, DrKernelError] = {}

    def fitting(self) -> Task:
        """The first task that is not too long. Raises DrKernelError where there is none."""
        found = next((task for task in self.tasks if not self._too_long(task)), None)
        if found is None:
            raise DrKernelError(self._too_long(self.tasks[0]))
        return found

    def draw(self, cursor: int, number: int) -> tuple[list[Task], int]:
        """The next usable tasks after `cursor` drawn ones, and the number drawn after that."""
        picked: list[Task] = []
        while len(picked) < number:
            drawn = [self._at(cursor + i) for i in range(number - len(picked))]
            cursor += len(drawn)
            picked += self.usable(drawn)
            if not picked and {task.id for task in self.tasks} <= self._unusable.keys():
                error = self._unusable[self.tasks[-1].id]
                error.on_every_rank = self._ranks.size > 1
                raise error
        return picked, cursor

    def usable(self, tasks: list[Task]) -> list[Task]:
        """Those that can be used; the others are logged, each once."""
        nodes = self._ranks.all_gather_object(lambda: self._refusals(tasks) if self._ranks.local_rank == 0 else [])
        reasons = [next(filter(None, found), "") for found in zip(*filter(None, nodes), strict=True)]
        for task, reason in zip(tasks, reasons, strict=True):
            if reason and task.id not in self._unusable:
                self._unusable[task.id] = DrKernelError(reason)
                self._log(f"passed over: {reason}")
        return [task for task, reason in zip(tasks, reasons, strict=True) if not reason]

    def _at(self, cursor: int) -> Task:
        epoch, offset = divmod(cursor, len(self.tasks))
        order = torch.randperm(len(self.tasks), generator=generator(self._seed, epoch))
        return self.tasks[order[offset]]

    def _refusals(self, tasks: list[Task]) -> list[str]:
        """Why this node cannot use each task, or nothing; its judge prepares the others."""
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            return list(pool.map(lambda task: self._too_long(task) or self._refusal(task), tasks))

    def _refusal(self, task: Task) -> str:
        try:
            degenerate = self._judge.check_task(task)
        except NotPrepared as error:  # else a failure of the judge would decide what a run trains on and is tested on
            raise WorkerLost(f"task {task.id}: {error}") from error
        except DrKernelError as error:
            return str(error) if task.id in str(error) else f"task {task.id}: {error}"
        return f"task {task.id}: degenerate: {degenerate}" if degenerate else ""
