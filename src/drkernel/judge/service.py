"""The Judge: hands submissions to worker processes, restarts them when they die, and remembers verdicts."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import drkernel
from drkernel.judge import admission, protocol
from drkernel.types import DrKernelError, Task, Verdict

SHAPES = ("reject", "penalise", "ignore")
GPUS = ("H200", "H100", "A100")
_START_S, _CACHED = 180.0, 8192
_KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR")


class Judge:
    """Judges submissions in sandboxed one-shot processes. Use as a context manager, or call `close()`.

    Args:
        device: `simulated`; times are then modelled for `gpu`.
        workers: examiner processes, and submissions that are judged at the same time.
        secret: seeds derive from it; with the same secret the same submission gets the same verdict, bit for bit
            (but for `seconds`). None draws a fresh one.
        timeout_s: longest wall time of one answer of a submission, and half of its CPU time in all.
        memory_mb: memory that a submission may allocate.
        cache: remember verdicts by source (trailing white space apart) and task.
        lazy_below: speed-ups under this count as no real gain.
        shapes: what a wrong answer on another legal shape means: `reject`, `penalise` (ok, but not `general`), or
            `ignore` (not tried).
        gate: False skips the static checks, for tests: nothing may depend on them.

    Raises:
        DrKernelError: for an unknown device, GPU or shape policy.
    """

    def __init__(
        self,
        *,
        device: str = "simulated",
        gpu: str = "H200",
        workers: int = 2,
        secret: bytes | None = None,
        timeout_s: float = 20.0,
        memory_mb: int = 4096,
        cache: bool = True,
        lazy_below: float = 1.05,
        shapes: str = "reject",
        gate: bool = True,
    ):
        if device == "cuda":
            raise DrKernelError("judge: device 'cuda' is not available in this version, use 'simulated'")
        for key, value, known in (
            ("device", device, ("simulated", "cuda")),
            ("gpu", gpu, GPUS),
            ("shapes", shapes, SHAPES),
        ):
            if value not in known:
                raise DrKernelError(f"judge: {key} is {value!r}, expected one of {', '.join(known)}")
        if workers < 1 or timeout_s <= 0:
            raise DrKernelError(f"judge: workers ({workers}) and timeout_s ({timeout_s}) must be positive")
        terms = {
            "device": f"{device}:{gpu}",
            "timeout_s": timeout_s,
            "lazy_below": lazy_below,
            "shapes": shapes,
            "gate": gate,
        }
        limits = {"memory_mb": memory_mb, "cpu_s": int(2 * timeout_s) + 1}
        self._settings = {"terms": terms, "limits": limits}
        self._secret = secret or os.urandom(32)
        self._patience = 60 + 20 * timeout_s
        self._verdicts: OrderedDict[tuple, Future] | None = OrderedDict() if cache else None
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[dict, Future] | None] = queue.SimpleQueue()
        self._warned = self._closed = False
        self._threads = [threading.Thread(target=self._serve, daemon=True, name=f"judge-{i}") for i in range(workers)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def submit(self, task: Task, source: str) -> Future[Verdict]:
        """Judges in the background. The future raises DrKernelError where the task is unusable."""
        key = (admission.digest(source), task.digest)
        with self._lock:
            self._expect_open()
            if self._verdicts is not None and key in self._verdicts:
                self._verdicts.move_to_end(key)
                return self._verdicts[key]
            future = self._enqueue(task, source)
            if self._verdicts is not None:
                self._verdicts[key] = future
                if len(self._verdicts) > _CACHED:
                    self._verdicts.popitem(last=False)
            return future

    def judge(self, task: Task, source: str) -> Verdict:
        return self.submit(task, source).result()

    def check_task(self, task: Task) -> None:
        """DrKernelError where the reference fails, cannot be shrunk, or a trivial answer would pass for right."""
        self._enqueue(task, None).result()

    def close(self) -> None:
        """Ends the worker processes; submissions that still wait are cancelled."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                if job := self._jobs.get_nowait():
                    job[1].cancel()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _expect_open(self) -> None:
        if self._closed:
            raise DrKernelError("judge: already closed")

    def _enqueue(self, task: Task, source: str | None) -> Future:
        self._expect_open()
        future: Future = Future()
        body = {"task": dataclasses.asdict(task), "source": source}
        if source is not None and len(source) > admission.MAX_SOURCE:
            body["source"] = source[: admission.MAX_SOURCE + 1]
        self._jobs.put((body, future))
        return future

    def _serve(self) -> None:
        """One thread per worker process: takes jobs, restarts the process when it dies."""
        worker: _Worker | None = None
        with contextlib.suppress(_Broken):
            worker = self._start()
        while job := self._jobs.get():
            body, future = job
            if not future.set_running_or_notify_cancel():
                continue
            answer, problem = None, ""
            for _ in range(2):
                try:
                    worker = worker or self._start()
                except _Broken as error:
                    answer = {"error": f"judge: no worker process starts: {error}"}
                    break
                try:
                    answer = worker.ask(body, self._patience)
                    break
                except _Broken as error:
                    problem = str(error)
                    worker.kill()
                    worker = None
            _settle(future, answer, problem, self._settings["terms"]["device"])
        if worker:
            worker.kill()

    def _start(self) -> _Worker:
        worker = _Worker(self._settings, self._secret)
        if worker.missing and not self._warned:
            self._warned = True
            warnings.warn(f"judge: this machine lacks {'; '.join(worker.missing)}", stacklevel=2)
        return worker


class _Broken(Exception):
    """A worker process died, hung or spoke nonsense."""


class _Worker:
    """A worker process and the connection to it."""

    def __init__(self, settings: dict[str, Any], secret: bytes):
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "drkernel.judge.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._connection, self._asker = ours, protocol.Asker(ours)
        try:
            self.missing: list[str] = self.ask(settings, _START_S)["missing"]
            self.ask({"secret": secret.hex()}, _START_S)
        except _Broken:
            self.kill()
            raise

    def ask(self, body: dict[str, Any], patience: float) -> dict[str, Any]:
        try:
            return self._asker.ask(body, time.monotonic() + patience)
        except (protocol.Gone, protocol.Late, protocol.ProtocolViolation) as error:
            raise _Broken(f"worker process: {type(error).__name__} {error}".strip()) from error

    def kill(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _environment() -> dict[str, str]:
    """No tokens or keys of the trainer's reach a worker; one thread each; the same hashes in every run."""
    paths = [str(Path(drkernel.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    fixed = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    fixed |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONSAFEPATH": "1", "HOME": "/nonexistent"}
    fixed["TORCHINDUCTOR_CACHE_DIR"] = tempfile.gettempdir()  # importing torch's compiler would create another folder
    return {k: os.environ[k] for k in _KEPT if k in os.environ} | {"PYTHONPATH": os.pathsep.join(paths)} | fixed


def _settle(future: Future, answer: dict[str, Any] | None, problem: str, device: str) -> None:
    if answer is None:
        future.set_result(Verdict("invalid", "judge_failure", f"the judge failed twice: {problem}", device=device))
    elif "error" in answer:
        future.set_exception(DrKernelError(answer["error"]))
    else:
        future.set_result(Verdict.from_dict(answer["verdict"]) if "verdict" in answer else None)
