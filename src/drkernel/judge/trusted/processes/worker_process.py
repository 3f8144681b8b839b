"""Starts and supervises the judge's worker processes. Runs in the process of the Judge; workers run worker.py."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import drkernel
from drkernel.judge.boundary import framing
from drkernel.judge.trusted.verdicts import judge_failure
from drkernel.types import DrKernelError, Verdict

ATTEMPTS = 2
"""How often a submission is tried whose worker dies."""
_START_S = 180.0
_KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "CUDA_HOME")
"""Variables of this process's environment that workers get."""


class WorkerCrashed(Exception):
    """A worker process died, hung or broke the protocol."""


class WorkerNotStarted(WorkerCrashed):
    """A worker process did not start."""


class NotPrepared(DrKernelError):
    """The judge failed while it prepared a task, which says nothing of the task: it may be tried again."""


class Worker:
    """A worker process and the connection to it.

    Args:
        settings: its first request; `kind` says what it is to be (see worker.py).
        environment: variables beyond those that every worker has.

    Raises:
        WorkerNotStarted.
    """

    def __init__(self, settings: dict[str, Any], secret: bytes, environment: Mapping[str, str] | None = None):
        try:
            self._connection, self._process = _start(base_environment() | dict(environment or {}))
        except OSError as error:  # the machine has no process, file or memory to spare
            raise WorkerNotStarted(f"{type(error).__name__}: {error}") from error
        self._requester = framing.Requester(self._connection)
        try:
            self.missing: list[str] = self._started(settings)["missing"]
            """Sandbox locks that this machine lacks."""
            self._started({"secret": secret.hex()})
        except WorkerCrashed as error:
            self.kill()
            raise WorkerNotStarted(str(error)) from error

    def _started(self, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.request(body, _START_S)
        if problem := reply.get("broken"):
            raise WorkerCrashed(problem)
        return reply

    def request(self, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Sends a request and returns the reply. After WorkerCrashed, all that can be done is `kill`.

        A request that cannot be sent is the task's fault, since whatever is a submission's in it is bounded.
        """
        try:
            return self._requester.request(body, time.monotonic() + timeout_s)
        except framing.Unsendable as error:
            return {"error": f"judge: the task makes a request that cannot be sent: {error}"}
        except (framing.PeerClosed, framing.DeadlineExceeded, framing.ProtocolViolation) as error:
            raise WorkerCrashed(f"worker process: {type(error).__name__} {error}".strip()) from error

    def tell_where(self) -> None:
        """Has the process write to its standard error where its threads are."""
        self._process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _start(environment: dict[str, str]) -> tuple[socket.socket, subprocess.Popen]:
    """A new worker process, and the connection to it. Raises OSError where the machine lacks something."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "drkernel.judge.trusted.processes.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
    return ours, process


class WorkerSlot:
    """At most one worker process at a time, which is started when it is needed and replaced after it crashed.

    A slot belongs to one thread.

    Args:
        start: starts a worker; raises WorkerNotStarted.
        retry_start: whether a start that fails counts as a failed attempt of `request`. Otherwise it ends the request.
    """

    def __init__(self, start: Callable[[], Worker], retry_start: bool = False):
        self._start, self._retry_start = start, retry_start
        self._worker: Worker | None = None

    @property
    def running(self) -> bool:
        return self._worker is not None

    def start(self) -> None:
        """Starts the worker, unless it is running.

        Raises:
            WorkerNotStarted.
        """
        self._worker = self._worker or self._start()

    def request(self, body: Callable[[], dict[str, Any]], timeout_s: float, attempts: int = ATTEMPTS) -> dict[str, Any]:
        """The worker's reply. A worker that crashes or takes too long is killed; the next attempt starts another one.

        Args:
            body: makes the request, anew for each attempt.

        Raises:
            WorkerCrashed: in the last attempt.
            WorkerNotStarted: in the last attempt; without `retry_start`, in any.
        """
        for left in reversed(range(attempts)):
            try:
                self.start()
                return self._worker.request(body(), timeout_s)  # type: ignore[union-attr]
            except WorkerCrashed as error:
                self.kill()
                if not left or (isinstance(error, WorkerNotStarted) and not self._retry_start):
                    raise
        raise AssertionError("at least one attempt is needed")

    def tell_where(self) -> None:
        """As Worker.tell_where, of the worker that runs now, if there is one."""
        if worker := self._worker:
            worker.tell_where()

    def kill(self) -> None:
        """Ends the worker, if there is one."""
        if self._worker:
            self._worker.kill()
        self._worker = None


class MissingLocksWarning:
    """Warns of the sandbox locks that this machine lacks, once for all workers of a judge."""

    def __init__(self) -> None:
        self._warned = False

    def show(self, worker: Worker) -> None:
        if worker.missing and not self._warned:
            self._warned = True
            warnings.warn(f"judge: this machine lacks {'; '.join(worker.missing)}", stacklevel=3)


def base_environment() -> dict[str, str]:
    """What every worker gets: no tokens or keys of the trainer's, one thread each, the same hashes in every run."""
    paths = [str(Path(drkernel.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    fixed = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    fixed |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONSAFEPATH": "1", "HOME": "/nonexistent"}
    fixed["USE_PYTORCH_KERNEL_CACHE"] = "0"  # kernels that torch compiles at run time are not kept: there is no home
    fixed["TORCHINDUCTOR_CACHE_DIR"] = tempfile.gettempdir()  # importing torch's compiler would create another folder
    return {k: os.environ[k] for k in _KEPT if k in os.environ} | {"PYTHONPATH": os.pathsep.join(paths)} | fixed


def settle(future: Future, reply: dict[str, Any] | None, problem: str, device: str, reason: str) -> None:
    """Ends the future of a submission with a worker's reply: a verdict, or an error of the task.

    Args:
        reply: None where every attempt failed.
        problem: why the last attempt failed.
        reason: how a failure of the judge is called, see verdicts.judge_failure.
    """
    if reply is None:
        future.set_result(judge_failure(reason, f"the judge failed {ATTEMPTS} times: {problem}", device))
    elif "error" in reply:
        future.set_exception(DrKernelError(reply["error"]))
    else:
        future.set_result(Verdict.from_dict(reply["verdict"]))


def settle_check(future: Future, reply: dict[str, Any] | None, problem: str) -> None:
    """Ends the future of a task that was to be checked; arguments as those of `settle`."""
    if reply is None:
        future.set_exception(NotPrepared(f"judge: a task could not be prepared: {problem}"))
    elif "error" in reply:
        future.set_exception(DrKernelError(reply["error"]))
    else:
        future.set_result(reply.get("degenerate", ""))
