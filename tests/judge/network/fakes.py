"""A judge whose answers a test chooses, and servers of it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from drkernel.judge import NotPrepared
from drkernel.judge.network.server import HttpServer
from drkernel.judge.options import JudgeOptions
from drkernel.types import DrKernelError, Task, Verdict


class FakeJudge:
    """Answers after as many seconds as the submission says; `never` stays open, `unusable` and `broken` raise."""

    def __init__(self, **options):
        self.options = JudgeOptions(**{"device": "simulated", "workers": 2, **options}).placed()
        self.pool, self.seen = ThreadPoolExecutor(32), []
        self.never: list[Future] = []

    def submit(self, task: Task, source: str) -> Future:
        self.seen.append((task, source))
        if source == "never":
            self.never.append(Future())
            return self.never[-1]
        return self.pool.submit(self._judge, task, source)

    def _judge(self, task: Task, source: str) -> Verdict:
        if source == "unusable":
            raise DrKernelError("task t: cannot be used")
        if source == "broken":
            raise KeyError("a bug")
        time.sleep(float(source))
        return Verdict("ok", "faster", detail=source, evidence={"task": task.id}, speedup=1.5, coverage=1.0)

    def check_task(self, task: Task) -> str:
        if "failed" in task.id:
            raise NotPrepared("judge: a task could not be prepared")
        if "bad" in task.id:
            raise DrKernelError(f"task {task.id}: trivial answer passes")
        return "zeros" if "degenerate" in task.id else ""

    def judge(self, task: Task, source: str) -> Verdict:
        return self.submit(task, source).result()


@contextlib.contextmanager
def served(*judges: FakeJudge, token: str | None = None) -> Iterator[list[HttpServer]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(HttpServer(judge, "127.0.0.1", 0, token)) for judge in judges]


def comes_true(condition, what: str, within_s: float = 5) -> None:
    deadline = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition(), what


def threads(name: str) -> int:
    return sum(name in thread.name for thread in threading.enumerate())
