"""Which tasks a step is about."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from drkernel.judge import JudgeProtocol, NotPrepared
from drkernel.rollout.verdicts import refusal
from drkernel.training.ranks import SINGLE, Ranks
from drkernel.training.seeds import generator
from drkernel.types import DrKernelError, Task, WorkerLost

_CONCURRENT = 16
"""Tasks that a judge checks at the same time."""

_MOST_LOST = 3
"""So many training tasks in a row that a judge fails to prepare are the judge's failure; fewer are the tasks'."""


class Sampler:
    """Training tasks, in a fresh permutation each epoch: a pure function of (seed, how many were drawn).

    Each node's judge prepares the tasks that are drawn. A task that cannot be used on one of the nodes is logged once
    and passed over by all of them. It is an error if none can be used. A task whose preparation ends the judge's
    process is passed over when it is drawn, too, unless others in a row do the same: then WorkerLost is raised, since
    such a failure says nothing of a task. The methods are collective: all ranks must call them, and get the same tasks.
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
        """too_long: says why the policy cannot take a task, or nothing. It is asked before the judge, about one task
        after the other: a prompt may run its task, which has the process's random numbers to itself, and Python 3.11
        cannot parse in several threads."""
        self.tasks, self._seed, self._judge, self._log = tasks, seed, judge, log
        self._too_long, self._ranks = too_long, ranks
        self._unusable: dict[str, DrKernelError] = {}
        self._lost = 0  # tasks in a row that this node's judge failed to prepare

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
            picked += self.usable(drawn, most_lost=_MOST_LOST)
            if not picked and {task.id for task in self.tasks} <= self._unusable.keys():
                error = self._unusable[self.tasks[-1].id]
                error.on_every_rank = self._ranks.size > 1
                raise error
        return picked, cursor

    def usable(self, tasks: list[Task], most_lost: int = 1) -> list[Task]:
        """Those that can be used; the others are logged, each once.

        most_lost: tasks in a row that a judge may fail to prepare before WorkerLost is raised.
        """
        refusals = lambda: self._refusals(tasks, most_lost) if self._ranks.local_rank == 0 else []
        nodes = self._ranks.all_gather_object(refusals)
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

    def _refusals(self, tasks: list[Task], most_lost: int) -> list[str]:
        """Why this node cannot use each task, or nothing; its judge prepares the others."""
        said = [self._too_long(task) for task in tasks]
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            found = list(pool.map(lambda task, reason: reason or self._refusal(task), tasks, said))
        for reason in found:
            if not isinstance(reason, WorkerLost):
                self._lost = 0
                continue
            self._lost += 1
            if self._lost >= most_lost:
                raise reason
        return [str(reason) for reason in found]

    def _refusal(self, task: Task) -> str | WorkerLost:
        try:
            return refusal(self._judge, task)
        except NotPrepared as error:
            return WorkerLost(str(error))
