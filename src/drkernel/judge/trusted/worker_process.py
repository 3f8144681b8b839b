"""The judge's worker processes, and how the service talks with them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch

import drkernel
from drkernel.judge.boundary import framing
from drkernel.types import DrKernelError, Verdict

_START_S = 180.0
_KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "CUDA_HOME")


class WorkerCrashed(Exception):
    """A worker process died, hung or spoke nonsense."""


class Worker:
    """A worker process and the connection to it.

    Args:
        settings: its first question; `kind` says what it is to be (see worker.py).
        environment: variables beyond those that every worker has.

    Raises:
        WorkerCrashed: it did not start.
    """

    def __init__(self, settings: dict[str, Any], secret: bytes, environment: Mapping[str, str] | None = None):
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "drkernel.judge.trusted.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=base_environment() | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._connection, self._asker = ours, framing.Asker(ours)
        try:
            self.missing: list[str] = self._started(settings)["missing"]
            self._started({"secret": secret.hex()})
        except WorkerCrashed:
            self.kill()
            raise

    def _started(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.ask(body, _START_S)
        if broken := answer.get("broken"):
            raise WorkerCrashed(broken)
        return answer

    def ask(self, body: dict[str, Any], patience: float) -> dict[str, Any]:
        try:
            return self._asker.ask(body, time.monotonic() + patience)
        except (framing.PeerClosed, framing.DeadlineExceeded, framing.ProtocolViolation) as error:
            raise WorkerCrashed(f"worker process: {type(error).__name__} {error}".strip()) from error

    def kill(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


def base_environment() -> dict[str, str]:
    """No tokens or keys of the trainer's reach a worker; one thread each; the same hashes in every run."""
    paths = [str(Path(drkernel.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    fixed = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    fixed |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONSAFEPATH": "1", "HOME": "/nonexistent"}
    fixed["TORCHINDUCTOR_CACHE_DIR"] = tempfile.gettempdir()  # importing torch's compiler would create another folder
    return {k: os.environ[k] for k in _KEPT if k in os.environ} | {"PYTHONPATH": os.pathsep.join(paths)} | fixed


def settle(future: Future, answer: dict[str, Any] | None, problem: str, device: str) -> None:
    """Ends a future with a worker's answer: a verdict, an error of the task, or why there is none."""
    if answer is None:
        future.set_result(Verdict("invalid", "judge_failure", f"the judge failed twice: {problem}", device=device))
    elif "error" in answer:
        future.set_exception(DrKernelError(answer["error"]))
    else:
        future.set_result(Verdict.from_dict(answer["verdict"]) if "verdict" in answer else None)


def visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES lists, or all GPUs by number; CUDA is not initialised."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name.strip() for name in listed.split(",") if name.strip()]
    return [str(number) for number in range(torch.cuda.device_count())]
