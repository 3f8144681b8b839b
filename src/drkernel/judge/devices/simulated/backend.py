"""Who does the judging on the simulated device: one thread and one worker process for each submission at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import warnings
from concurrent.futures import Future
from typing import Any

from drkernel.judge.trusted.worker_process import Worker, WorkerCrashed, settle
from drkernel.types import Task

_ENVIRONMENT = {"TRITON_INTERPRET": "1"}


class SimulatedBackend:
    """Takes tasks and sources, and restarts workers that die; nothing that was taken is lost.

    Args:
        settings: see worker.py.
        patience: seconds that a worker may take for one submission.
    """

    def __init__(self, settings: dict[str, Any], secret: bytes, workers: int, patience: float):
        self._settings, self._secret, self._patience = settings | {"kind": "simulated"}, secret, patience
        self._jobs: queue.SimpleQueue[tuple[dict, Future] | None] = queue.SimpleQueue()
        self._warned = False
        self._threads = [threading.Thread(target=self._serve, daemon=True, name=f"judge-{i}") for i in range(workers)]
        for thread in self._threads:
            thread.start()

    def enqueue(self, task: Task, source: str | None) -> Future:
        """A verdict to come; with no source, whether the task is usable (None, or DrKernelError)."""
        future: Future = Future()
        self._jobs.put(({"task": dataclasses.asdict(task), "source": source}, future))
        return future

    def close(self) -> None:
        """Ends the worker processes; what still waits is cancelled."""
        with contextlib.suppress(queue.Empty):
            while True:
                if job := self._jobs.get_nowait():
                    job[1].cancel()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        worker: Worker | None = None
        with contextlib.suppress(WorkerCrashed):
            worker = self._start()
        while job := self._jobs.get():
            body, future = job
            if not future.set_running_or_notify_cancel():
                continue
            answer, problem = None, ""
            for _ in range(2):
                try:
                    worker = worker or self._start()
                except WorkerCrashed as error:
                    answer = {"error": f"judge: no worker process starts: {error}"}
                    break
                try:
                    answer = worker.ask(body, self._patience)
                    break
                except WorkerCrashed as error:
                    problem = str(error)
                    worker.kill()
                    worker = None
            settle(future, answer, problem, self._settings["config"]["device"])
        if worker:
            worker.kill()

    def _start(self) -> Worker:
        worker = Worker(self._settings, self._secret, _ENVIRONMENT)
        if worker.missing and not self._warned:
            self._warned = True
            warnings.warn(f"judge: this machine lacks {'; '.join(worker.missing)}", stacklevel=2)
        return worker
