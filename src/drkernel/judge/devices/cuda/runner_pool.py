"""The runner processes on a GPU, as an examiner sees them. Runs in an examiner's process.

Runners are started ahead of time. Each submission gets one, and others one after the other where it needs more.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from drkernel.judge.boundary.cuda import activity, kernel_cache, runner_environment, setup
from drkernel.judge.boundary.cuda.activity import ActivityReader
from drkernel.judge.boundary.cuda.handshake import Handshake
from drkernel.judge.boundary.framing import DeadlineExceeded, PeerClosed, ProtocolViolation
from drkernel.judge.boundary.shared_tensors import HostArea
from drkernel.judge.devices.cuda import precompile
from drkernel.judge.devices.cuda.buffers import DeviceBuffers
from drkernel.judge.devices.cuda.gpu_lock import GpuUnhealthy
from drkernel.judge.trusted.processes.zygote import Process, Zygote

_START_S, _LIMIT_S, _POLL_S = 60.0, 10.0, 0.01
"""Seconds that a runner may take to start, and to set its memory limit; pause between looks for one that is ready."""
_PRODUCTS = re.compile(
    r"[\w)\]] *@ *[\w(]|\b(mm|bmm|addmm|baddbmm|matmul|mv|einsum|tensordot|(bi)?linear|scaled_dot_product_attention"
    r"|(Bil|L)inear|LSTM|GRU|RNN|MultiheadAttention)\b"
)


def _map_request(handles: list) -> dict[str, Any]:
    return {"do": "map", "inputs": handles[0], "outputs": handles[1]}


@dataclass(frozen=True)
class _WaitingRunner:
    """A runner that no submission has got yet."""

    process: Process
    folder: Path
    """Where it will look for compiled kernels."""
    begun: float
    products: bool = False
    """Whether cuBLAS is loaded in it."""


def multiplies(source: str) -> bool:
    """Whether a submission seems to leave products of matrices to PyTorch. A wrong guess costs only time."""
    return bool(_PRODUCTS.search(source))


class RunnerPool:
    """Runners that are started ahead of time, because a CUDA context takes a quarter of a second.

    A runner that is taken is replaced by one of the same kind, with or without cuBLAS: submissions to one task come
    together, and either all leave products of matrices to PyTorch or none does.
    """

    def __init__(self, zygote: Zygote, scratch: Path, size: int, buffers: DeviceBuffers):
        self._zygote, self._scratch, self._buffers = zygote, scratch, buffers
        self._waiting: deque[_WaitingRunner] = deque()
        self.terminating: list[Process] = []
        """Runners that were killed. For each, `wait_released` must follow."""
        self._environment = setup.only(str(torch.cuda.get_device_properties(0).uuid))
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """For each runner that is to be started, whether with cuBLAS."""
        for _ in range(size):
            self._wanted.put(False)
        self._changed = threading.Condition()
        self._shared = scratch / "shared"
        precompile.warm_shared(self._shared)
        activity.compile_library(self._shared)
        self._error: BaseException | None = None
        threading.Thread(target=self._fill, daemon=True).start()

    def _fill(self) -> None:
        number = 0
        try:
            while True:
                products = self._wanted.get()
                folder = self._scratch / f"runner-{os.getpid()}-{number}"
                number += 1
                _link_all(self._shared, folder)
                with self._changed:
                    environment = self._environment | {runner_environment.KERNELS: str(folder)}
                    environment |= {runner_environment.PRODUCTS: "1"} if products else {}
                    process = self._zygote.start(environment)
                    process.send_request({"do": "flush"}, time.monotonic() + _START_S)  # its reply says it is ready
                    self._waiting.append(_WaitingRunner(process, folder, time.monotonic(), products))
                    self._changed.notify()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify()

    def take(self, memory: float, products: bool = False) -> tuple[Process, Path]:
        """A runner that shares the memory of `buffers`, and the folder in which it will look for compiled kernels.

        Args:
            memory: fraction of the GPU's memory that it may allocate.
            products: whether one with cuBLAS is better.

        Raises:
            GpuUnhealthy: no runner starts.
        """
        runner = self._first_ready(products)
        process = runner.process
        try:
            error = process.receive_reply(time.monotonic() + _START_S).get("error")
            if not error:  # not before: the memory of areas that are given back is free when nobody maps them
                error = process.request(_map_request(self._buffers.handles), time.monotonic() + _START_S).get("error")
            process.request({"do": "limit", "memory": memory}, time.monotonic() + _LIMIT_S)
        except (PeerClosed, DeadlineExceeded, ProtocolViolation) as lost:  # no submission has run in it yet
            raise GpuUnhealthy(f"a runner was lost before its first request: {lost!r}") from lost
        if error:
            raise GpuUnhealthy(f"no runner starts: {error}")
        (words,) = process.areas
        assert isinstance(words, HostArea)
        process.handshake, process.activity = Handshake(words), ActivityReader(words)
        process.areas = [self._buffers.shared_in, self._buffers.shared_out]
        return process, runner.folder

    def _first_ready(self, products: bool) -> _WaitingRunner:
        """The first runner that is ready, if possible of the right kind.

        Once in a while a runner never gets ready. Others are taken then, and it is given up in the end.
        """
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._error)
                if self._error:
                    raise self._error
                eldest = self._waiting[0]
                late = time.monotonic() > eldest.begun + _START_S and not eldest.process.reply_ready(0.0)
                ready = (runner for runner in self._waiting if runner.process.reply_ready(0.0))
                taken = eldest if late else min(ready, key=lambda runner: runner.products != products, default=None)
                if taken:
                    self._waiting.remove(taken)
                    self._wanted.put(products)
            if late:
                self._give_up(eldest)
            elif taken:
                return taken
            else:
                eldest.process.reply_ready(_POLL_S)
        raise GpuUnhealthy(f"no runner was ready within {_START_S:g} s")

    def _give_up(self, runner: _WaitingRunner) -> None:
        """Ends a runner and warns what it was doing: it is not known why one may take for ever."""
        doing = [_read(f"/proc/{runner.process.pid}/{name}") for name in ("wchan", "syscall")]
        warnings.warn(f"judge: a runner was not ready within {_START_S:g} s ({', '.join(doing)})", stacklevel=2)
        runner.process.end()
        self.terminating.append(runner.process)
        shutil.rmtree(runner.folder, ignore_errors=True)

    @property
    def releasing(self) -> bool:
        """Whether some runners that were killed still hold part of the GPU."""
        return not all(process.released for process in self.terminating)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stops runners that are starting: a CUDA context in the making delays other work by up to 0.2 ms."""
        with contextlib.ExitStack() as stack, self._changed:
            for runner in self._waiting:
                stack.enter_context(runner.process.stopped())
            yield


def _link_all(source: Path, target: Path) -> None:
    """Makes a folder with links to all files of another one, in which other examiners may be building at the same time.

    What is not finished is left out: private folders that builders remove again, and files that they rename meanwhile.
    """
    target.mkdir()
    for entry in os.scandir(source):
        with contextlib.suppress(FileNotFoundError):
            if entry.is_file():
                os.link(entry.path, target / entry.name)
            elif not entry.name.startswith(tempfile.gettempprefix()):
                _link_all(Path(entry.path), target / entry.name)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip() or "running"
    except OSError as error:
        return str(error)


class RunnerLease:
    """The runners of one submission, one after the other. Each finds the submission's compiled kernels.

    Args:
        memory, products: see RunnerPool.take.
    """

    def __init__(self, pool: RunnerPool, memory: float, products: bool = False):
        self._pool, self._memory, self._products = pool, memory, products
        self.process, self.folder = pool.take(memory, products)

    def adopt(self, kernels: Path) -> None:
        """Moves compiled kernels to where the runner looks for them; Triton's index of each names the place."""
        for entry in kernels.iterdir():
            target = self.folder / entry.name
            if target.exists():
                continue
            entry.rename(target)
            for index in target.glob("__grp__*.json"):
                names = json.loads(index.read_text())["child_paths"]
                index.write_text(json.dumps({"child_paths": {name: str(target / name) for name in names}}))
        self.process.activity.set_own(kernel_cache.known_names(self.folder))

    def replace(self) -> Process:
        """Kills the runner and continues with another one, which is returned."""
        before, (process, folder) = self.folder, self._pool.take(self._memory, self._products)
        self.end()
        self.process, self.folder = process, folder
        self.adopt(before)
        shutil.rmtree(before, ignore_errors=True)
        return self.process

    def end(self) -> str:
        """Ends the runner, see Process.end."""
        ending = self.process.end()
        self._pool.terminating.append(self.process)
        return ending
