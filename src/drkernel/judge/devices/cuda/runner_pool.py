"""The processes that submissions run in on a GPU: started ahead of time, one after the other for each submission."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from drkernel.judge.boundary.cuda import setup
from drkernel.judge.boundary.framing import DeadlineExceeded, PeerClosed, ProtocolViolation
from drkernel.judge.boundary.zygote import Process, Zygote
from drkernel.judge.devices.cuda import precompile
from drkernel.judge.devices.cuda.buffers import DeviceBuffers
from drkernel.judge.devices.cuda.gpu_lock import GpuUnhealthy
from drkernel.judge.untrusted.cuda import runner

_START_S, _LIMIT_S, _LOOK_S = 60.0, 10.0, 0.01
_PRODUCTS = re.compile(
    r"[\w)\]] *@ *[\w(]|\b(mm|bmm|addmm|baddbmm|matmul|mv|einsum|tensordot|(bi)?linear|scaled_dot_product_attention"
    r"|(Bil|L)inear|LSTM|GRU|RNN|MultiheadAttention)\b"
)


def _mapping(handles: list) -> dict[str, Any]:
    return {"do": "map", "inputs": handles[0], "outputs": handles[1]}


@dataclass(frozen=True)
class _Spare:
    process: Process
    folder: Path
    handles: list
    """Of the buffers's memory that it was told to map."""
    begun: float
    products: bool = False
    """Whether cuBLAS is ready in it."""


def multiplies(source: str) -> bool:
    """Whether a submission seems to leave products of matrices to PyTorch; a wrong guess costs time alone."""
    return bool(_PRODUCTS.search(source))


class Pool:
    """Runners that are started ahead of time, because a CUDA context takes a quarter of a second.

    In the place of each that is taken comes one for a submission of the same kind: those to one task, which come
    together, either leave products of matrices to PyTorch or do not.
    """

    def __init__(self, zygote: Zygote, scratch: Path, size: int, buffers: DeviceBuffers):
        self._zygote, self._scratch, self._buffers = zygote, scratch, buffers
        self._spare: deque[_Spare] = deque()
        self.terminating: list[Process] = []
        """Those that were killed; each must be reaped."""
        self._environment = setup.only(str(torch.cuda.get_device_properties(0).uuid))
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Of each that is to be started, whether with cuBLAS."""
        for _ in range(size):
            self._wanted.put(False)
        self._changed = threading.Condition()
        self._shared = scratch / "shared"
        precompile.warm_shared(self._shared)
        self._error: BaseException | None = None
        threading.Thread(target=self._fill, daemon=True).start()

    def _fill(self) -> None:
        number = 0
        try:
            while True:
                products = self._wanted.get()
                folder = self._scratch / f"runner-{os.getpid()}-{number}"
                number += 1
                shutil.copytree(self._shared, folder, copy_function=os.link)
                with self._changed:
                    environment = self._environment | {runner.KERNELS: str(folder)}
                    environment |= {runner.PRODUCTS: "1"} if products else {}
                    process, handles = self._zygote.start(environment), self._buffers.handles
                    process.post(_mapping(handles), time.monotonic() + _START_S)
                    self._spare.append(_Spare(process, folder, handles, time.monotonic(), products))
                    self._changed.notify()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify()

    def take(self, memory: float, products: bool = False) -> tuple[Process, Path]:
        """A runner that shares the buffers's memory, and the folder that it will look for compiled kernels in.

        Args:
            memory: share of the GPU's memory that it may allocate.
            products: whether one with cuBLAS is better.
        """
        spare = self._first(products)
        process = spare.process
        try:
            error = process.collect(time.monotonic() + _START_S).get("error")
            if spare.handles is not self._buffers.handles and not error:
                error = process.ask(_mapping(self._buffers.handles), time.monotonic() + _START_S).get("error")
            process.ask({"do": "limit", "memory": memory}, time.monotonic() + _LIMIT_S)
        except (PeerClosed, DeadlineExceeded, ProtocolViolation) as lost:  # no submission has run in it yet
            raise GpuUnhealthy(f"a runner was lost before its first question: {lost!r}") from lost
        if error:
            raise GpuUnhealthy(f"no runner starts: {error}")
        process.areas = [self._buffers.shared_in, self._buffers.shared_out]
        return process, spare.folder

    def _first(self, products: bool) -> _Spare:
        """The first that is ready, if possible of the right kind.

        Once in a while one never is: others are taken, and it is given up in the end.
        """
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with self._changed:
                self._changed.wait_for(lambda: self._spare or self._error)
                if self._error:
                    raise self._error
                eldest = self._spare[0]
                late = time.monotonic() > eldest.begun + _START_S and not eldest.process.answered(0.0)
                ready = (spare for spare in self._spare if spare.process.answered(0.0))
                taken = eldest if late else min(ready, key=lambda spare: spare.products != products, default=None)
                if taken:
                    self._spare.remove(taken)
                    self._wanted.put(products)
            if late:
                self._give_up(eldest)
            elif taken:
                return taken
            else:
                eldest.process.answered(_LOOK_S)
        raise GpuUnhealthy(f"no runner was ready within {_START_S:g} s")

    def _give_up(self, spare: _Spare) -> None:
        """Ends the process, and says what it was doing: nobody knows yet why it may take for ever."""
        doing = [_read(f"/proc/{spare.process.pid}/{name}") for name in ("wchan", "syscall")]
        warnings.warn(f"judge: a runner was not ready within {_START_S:g} s ({', '.join(doing)})", stacklevel=2)
        spare.process.end()
        self.terminating.append(spare.process)
        shutil.rmtree(spare.folder, ignore_errors=True)

    @property
    def burying(self) -> bool:
        """Whether some that were killed still have part of the GPU."""
        return not all(process.gone for process in self.terminating)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No runner starts meanwhile: a context that comes into being delays what runs on the GPU by up to 0.2 ms."""
        with contextlib.ExitStack() as stack, self._changed:
            for spare in self._spare:
                stack.enter_context(spare.process.stopped())
            yield


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip() or "running"
    except OSError as error:
        return str(error)


class RunnerLease:
    """The runners of one submission, one after the other; each finds its compiled kernels.

    Args:
        memory, products: see Pool.take.
    """

    def __init__(self, pool: Pool, memory: float, products: bool = False):
        self._pool, self._facts = pool, (memory, products)
        self.process, self.folder = pool.take(*self._facts)

    def adopt(self, kernels: Path) -> None:
        """Moves compiled kernels to where the runner looks for them; Triton's index of each names the place."""
        for entry in kernels.iterdir():
            home = self.folder / entry.name
            if home.exists():
                continue
            entry.rename(home)
            for index in home.glob("__grp__*.json"):
                names = json.loads(index.read_text())["child_paths"]
                index.write_text(json.dumps({"child_paths": {name: str(home / name) for name in names}}))

    def change(self) -> Process:
        """Kills the runner and goes on with another."""
        before, (process, folder) = self.folder, self._pool.take(*self._facts)
        self.end()
        self.process, self.folder = process, folder
        self.adopt(before)
        shutil.rmtree(before, ignore_errors=True)
        return self.process

    def end(self) -> str:
        """As Process.end; once for each."""
        ending = self.process.end()
        self._pool.terminating.append(self.process)
        return ending
