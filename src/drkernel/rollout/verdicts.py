"""What rollouts and studies share: the verdicts under way."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

from drkernel.judge import JudgeProtocol, NotPrepared
from drkernel.types import DrKernelError, Task, Verdict, WorkerLost

_POLL_S = 1.0
"""How often a wait for a verdict asks whether to stop."""


class VerdictQueue:
    """Futures under way. Their callbacks run in the thread that takes them, in the order of arrival."""

    def __init__(self, deadline_s: float, error: type[Exception] = WorkerLost):
        """deadline_s: how long `take` waits for the first one before it raises `error`."""
        self.pending = 0
        self.waited_s = 0.0
        """Seconds that `take` has waited so far."""
        self._deadline_s, self._error = deadline_s, error
        self._done: SimpleQueue[tuple[Callable[..., None], tuple]] = SimpleQueue()

    def add(self, future: Future, then: Callable[..., None], *arguments: Any) -> None:
        """`take` calls `then(*arguments, future)` once the future is done."""
        self.pending += 1
        future.add_done_callback(lambda done: self._done.put((then, (*arguments, done))))

    def take(self, wait: bool, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Handles what is done. With `wait` at least one, unless `should_stop()` becomes true meanwhile."""
        deadline = time.monotonic() + self._deadline_s
        while self.pending:
            started = time.perf_counter()
            try:
                then, arguments = self._done.get(block=wait, timeout=min(_POLL_S, self._deadline_s))
            except Empty:
                if not wait or should_stop():
                    return
                if time.monotonic() > deadline:
                    waited = f"no verdict within {self._deadline_s:g} s, {self.pending} are awaited"
                    raise self._error(f"judge: {waited}") from None
                continue
            finally:
                self.waited_s += time.perf_counter() - started
            wait = False
            self.pending -= 1
            then(*arguments)


def no_code(task: Task) -> Verdict:
    """The verdict on a completion without a submission."""
    return Verdict("invalid", "no_code", f"The answer has no code that defines class {task.submission_name}.")


def refusal(judge: JudgeProtocol, task: Task) -> str:
    """Why a judge cannot use a task to train on, or nothing; it has prepared the task then.

    Raises NotPrepared where the judge failed.
    """
    try:
        degenerate = judge.check_task(task)
    except NotPrepared as error:
        raise NotPrepared(f"task {task.id}: {error}") from error
    except DrKernelError as error:
        return str(error) if task.id in str(error) else f"task {task.id}: {error}"
    return f"task {task.id}: degenerate: {degenerate}" if degenerate else ""


def judged(future: Future[Verdict]) -> Verdict:
    """The verdict of a future that is done; a failure of the judge where it refuses a task that it took before, or
    could not prepare it again.

    Raises what else the future raises: the judge has a bug, or is lost.
    """
    try:
        return future.result()
    except DrKernelError as error:
        return Verdict("judge_failure", "not_prepared", str(error))


def resolved(verdict: Verdict) -> Future[Verdict]:
    """A verdict that needs no judge, as a future."""
    future: Future[Verdict] = Future()
    future.set_result(verdict)
    return future
