"""The processes that submissions run in on a GPU: started ahead of time, one after the other for each submission."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from drkernel.judge.cuda import precompile, runner, setup
from drkernel.judge.cuda.desk import Desk
from drkernel.judge.cuda.turns import Unwell
from drkernel.judge.protocol import Gone, Late, ProtocolViolation
from drkernel.judge.zygote import Process, Zygote

_START_S, _LIMIT_S = 60.0, 10.0


def _mapping(handles: list) -> dict[str, Any]:
    return {"do": "map", "inputs": handles[0], "outputs": handles[1]}


class Pool:
    """Runners that are started ahead of time, because a CUDA context takes a quarter of a second."""

    def __init__(self, zygote: Zygote, scratch: Path, size: int, desk: Desk):
        self._zygote, self._scratch, self._desk = zygote, scratch, desk
        self._ready: deque[tuple[Process, Path, list]] = deque()
        self._environment = setup.only(str(torch.cuda.get_device_properties(0).uuid))
        self._wanted, self._changed = threading.Semaphore(size), threading.Condition()
        self._shared = scratch / "shared"
        precompile.warm_shared(self._shared)
        self._error: BaseException | None = None
        threading.Thread(target=self._fill, daemon=True).start()

    def _fill(self) -> None:
        number = 0
        try:
            while self._wanted.acquire():
                folder = self._scratch / f"runner-{os.getpid()}-{number}"
                number += 1
                shutil.copytree(self._shared, folder, copy_function=os.link)
                with self._changed:
                    environment = self._environment | {runner.KERNELS: str(folder)}
                    process, handles = self._zygote.start(environment), self._desk.handles
                    process.post(_mapping(handles), time.monotonic() + _START_S)
                    self._ready.append((process, folder, handles))
                    self._changed.notify()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify()

    def take(self, memory: float) -> tuple[Process, Path]:
        """A runner that shares the desk's memory, and the folder that it will look for compiled kernels in.

        Args:
            memory: share of the GPU's memory that it may allocate.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._error)
            if self._error:
                raise self._error
            process, folder, handles = self._ready.popleft()
        self._wanted.release()
        try:
            error = process.collect(time.monotonic() + _START_S).get("error")
            if handles is not self._desk.handles and not error:
                error = process.ask(_mapping(self._desk.handles), time.monotonic() + _START_S).get("error")
            process.ask({"do": "limit", "memory": memory}, time.monotonic() + _LIMIT_S)
        except (Gone, Late, ProtocolViolation) as lost:  # no submission has run in it yet
            raise Unwell(f"a runner was lost before its first question: {lost!r}") from lost
        if error:
            raise Unwell(f"no runner starts: {error}")
        process.areas = [self._desk.shared_in, self._desk.shared_out]
        return process, folder

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No runner starts meanwhile: a context that comes into being delays what runs on the GPU by up to 0.2 ms."""
        with contextlib.ExitStack() as stack, self._changed:
            for process, *_ in self._ready:
                stack.enter_context(process.stopped())
            yield


class Runners:
    """The runners of one submission, one after the other; each finds its compiled kernels.

    Args:
        memory: see Pool.take.
        dying: where processes go that have been killed.
    """

    def __init__(self, pool: Pool, memory: float, dying: list[Process]):
        self._pool, self._memory, self._dying = pool, memory, dying
        self.process, self.folder = pool.take(memory)

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
        before, (process, folder) = self.folder, self._pool.take(self._memory)
        self.end()
        self.process, self.folder = process, folder
        self.adopt(before)
        shutil.rmtree(before, ignore_errors=True)
        return self.process

    def end(self) -> str:
        """As Process.end; once for each."""
        ending = self.process.end()
        self._dying.append(self.process)
        return ending
