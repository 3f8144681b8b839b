"""The Judge: caches verdicts, and has a backend that does the judging.

It runs in the process of its user, which executes no submission.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from drkernel.judge.boundary.framing import MAX_SOURCE
from drkernel.judge.devices.simulated.backend import SimulatedBackend
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.interface import Backend
from drkernel.judge.options import DEVICES, JudgeOptions, longest_s
from drkernel.judge.trusted.source import static_check
from drkernel.judge.trusted.verdicts import reason_of
from drkernel.types import DrKernelError, Task, Verdict

__all__ = ["DEVICES", "GPUS", "Judge", "longest_s", "penalised"]
OF_EXAMINATIONS = (
    *("timeout_s", "lazy_below", "shapes", "gate", "price_hacks", "criterion", "degenerate", "memory_gib"),
    *("timed_shapes", "across_shapes"),
)
"""The options that examiners have, too."""
_MAX_CACHED = 8192
_CPU_LIMITS = {"cuda": 2, "simulated": 9}
"""Processor seconds of a submission's process, in time limits of one reply. On the simulated device all replies
together may take so many (budget_factor times PreparedTask.more_time)."""


class Judge:
    """Judges submissions in sandboxed one-shot processes. Use as a context manager, or call `close()`.

    options: as JudgeOptions documents and checks them: `Judge(device="simulated", workers=2)`.
    """

    def __init__(self, **options: Any):
        given = JudgeOptions(**options).placed()
        assert given.workers and given.timeout_s, "placed() decides"
        self.options = given
        """What this judge was made with, and what it chose by the machine."""
        secret, worker_timeout_s = given.secret or os.urandom(32), longest_s(given.timeout_s)
        config = {field: getattr(given, field) for field in OF_EXAMINATIONS}
        limits = {
            "host_memory_mib": given.host_memory_mib,
            "cpu_s": int(_CPU_LIMITS[given.device] * given.timeout_s) + 1,
        }
        settings: dict[str, Any]
        self._backend: Backend
        if given.device == "cuda":
            from drkernel.judge.devices.cuda.backend import CudaBackend
            from drkernel.judge.devices.cuda.baselines import Store

            store = Store(given.baselines) if given.baselines is not None else None
            settings = {"config": config | {"device": "cuda"}, "limits": limits, "colocated": given.share}
            screeners = -(-given.workers // 2) if given.screens else 0
            self._backend = CudaBackend(settings, secret, given.gpus, given.workers, worker_timeout_s, store, screeners)
        else:
            settings = {"config": config | {"device": f"simulated:{given.gpu}"}, "limits": limits}
            self._backend = SimulatedBackend(settings, secret, given.workers, worker_timeout_s)
        self._penalises, self._lazy_below = given.shapes == "penalise", given.lazy_below
        self._verdicts: OrderedDict[tuple, Future] | None = OrderedDict() if given.cache else None
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def submit(self, task: Task, source: str) -> Future[Verdict]:
        """Judges in the background. The future raises DrKernelError where the task is unusable."""
        key = (static_check.digest(source), task.digest)
        with self._lock:
            self._expect_open()
            if self._verdicts is None:
                return self._verdict_to_come(task, source)
            if key in self._verdicts:
                self._verdicts.move_to_end(key)
                return self._verdicts[key]
            future = self._verdicts[key] = self._verdict_to_come(task, source)
            if len(self._verdicts) > _MAX_CACHED:
                self._verdicts.popitem(last=False)
        future.add_done_callback(lambda done: self._forget_failure(key, done))
        return future

    def _verdict_to_come(self, task: Task, source: str) -> Future[Verdict]:
        """The backend's verdict, as it counts."""
        future = self._backend.enqueue(task, _shortened(source))
        return _mapped(future, lambda verdict: penalised(verdict, self._lazy_below)) if self._penalises else future

    def _forget_failure(self, key: tuple, done: Future) -> None:
        """A failure of the judge is not kept: who asks again gets another attempt."""
        failed = done.cancelled() or isinstance(done.exception(), Exception) or done.result().is_judge_failure
        with self._lock:
            if failed and self._verdicts is not None and self._verdicts.get(key) is done:
                del self._verdicts[key]

    def judge(self, task: Task, source: str) -> Verdict:
        return self.submit(task, source).result()

    def check_task(self, task: Task) -> str:
        """Which trivial outputs would pass on a task, in words; empty where none would.

        Raises:
            DrKernelError: the reference fails or cannot be shrunk, or the task is refused; NotPrepared, which is one,
                where the judge failed.
        """
        with self._lock:
            self._expect_open()
            future = self._backend.enqueue(task, None)
        return future.result()

    def doing(self) -> list[str]:
        """What each examiner of a GPU does now, and for how long; each writes its stack to its standard error. For
        people who wonder why no verdict comes."""
        return self._backend.doing()

    def close(self) -> None:
        """Ends the worker processes; submissions that still wait are cancelled."""
        with self._lock:  # what was accepted is in the backend's queues now, and nothing more will be
            if self._closed:
                return
            self._closed = True
        self._backend.close()

    def _expect_open(self) -> None:
        if self._closed:
            raise DrKernelError("judge: already closed")


def penalised(verdict: Verdict, lazy_below: float) -> Verdict:
    """The verdict as it counts with `shapes="penalise"`: a submission that is not `general` is no faster than the
    reference, which its user would call at the other shapes. `evidence["measured_speedup"]` keeps what was measured.

    >>> fast = Verdict("ok", "faster", speedup=2.0, general=False)
    >>> counted = penalised(fast, lazy_below=1.05)
    >>> counted.speedup, counted.reason, counted.evidence
    (1.0, 'lazy', {'measured_speedup': 2.0})
    """
    if verdict.general or verdict.speedup is None or verdict.speedup <= 1:
        return verdict
    evidence = verdict.evidence | {"measured_speedup": verdict.speedup}
    if others := evidence.get("speedup_over"):
        evidence["speedup_over"] = {name: min(1.0, speedup) for name, speedup in others.items()}
    counted = dataclasses.replace(verdict, speedup=1.0, evidence=evidence)
    if not verdict.ok:
        return counted
    lazy = lazy_below > 1
    return dataclasses.replace(counted, lazy=lazy, reason=reason_of(1.0, lazy))


def _mapped(future: Future, change: Callable[[Any], Any]) -> Future:
    """A future of what `change` makes of the result; errors and cancellations, of either, pass through."""
    changed: Future = Future()
    changed.add_done_callback(lambda done: done.cancelled() and future.cancel())

    def pass_on(done: Future) -> None:
        if not changed.set_running_or_notify_cancel():
            return
        try:
            changed.set_result(change(done.result()))
        except BaseException as error:
            changed.set_exception(error)

    future.add_done_callback(pass_on)
    return changed


def _shortened(source: str) -> str:
    """Enough of a source to see that it is too large."""
    return source[: MAX_SOURCE + 1]
