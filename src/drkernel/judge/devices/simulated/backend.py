"""Judges on the simulated device: one thread of the Judge's process and one worker process per submission at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import queue
import threading
from concurrent.futures import Future
from typing import Any

from drkernel.judge.trusted.processes.worker_process import (
    MissingLocksWarning,
    Worker,
    WorkerCrashed,
    WorkerNotStarted,
    WorkerSlot,
    settle,
    settle_check,
)
from drkernel.types import Task

_ENVIRONMENT = {"TRITON_INTERPRET": "0"}
"""Runners turn to the interpreter by themselves; tracers compile."""


class SimulatedBackend:
    """An `interface.Backend`.

    Args:
        settings: of the workers, see worker.py.
        workers: how many there are.
        timeout_s: seconds that a worker may take for one submission.
    """

    def __init__(self, settings: dict[str, Any], secret: bytes, workers: int, timeout_s: float):
        self._settings, self._secret, self._timeout_s = settings | {"kind": "simulated"}, secret, timeout_s
        self._jobs: queue.SimpleQueue[tuple[dict, Future] | None] = queue.SimpleQueue()
        self._missing_locks = MissingLocksWarning()
        self._threads = [threading.Thread(target=self._serve, daemon=True, name=f"judge-{i}") for i in range(workers)]
        for thread in self._threads:
            thread.start()

    def enqueue(self, task: Task, source: str | None) -> Future:
        future: Future = Future()
        self._jobs.put(({"task": dataclasses.asdict(task), "source": source}, future))
        return future

    def doing(self) -> list[str]:
        return []

    def close(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                if job := self._jobs.get_nowait():
                    job[1].cancel()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        """One thread per worker."""
        slot = WorkerSlot(self._start)
        with contextlib.suppress(WorkerNotStarted):
            slot.start()
        while job := self._jobs.get():
            body, future = job
            if not future.set_running_or_notify_cancel():
                continue
            reply, problem = None, ""
            try:
                reply = slot.request(functools.partial(dict, body), self._timeout_s)
            except WorkerNotStarted as error:
                problem = f"no worker process starts: {error}"
            except WorkerCrashed as error:
                problem = str(error)
            if body["source"] is None:
                settle_check(future, reply, problem)
            else:
                settle(future, reply, problem, self._settings["config"]["device"], "worker_lost")
        slot.kill()

    def _start(self) -> Worker:
        worker = Worker(self._settings, self._secret, _ENVIRONMENT)
        self._missing_locks.show(worker)
        return worker
