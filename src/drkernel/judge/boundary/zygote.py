"""A process with torch and Triton imported that forks one-shot processes for submissions, and buries them.

The zygote never executes submitted code itself and holds no secret: it is forked before the examiner learns any.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drkernel.judge.boundary import framing, sandbox
from drkernel.judge.boundary.sandbox import Limits, Sandbox
from drkernel.judge.boundary.shared_tensors import Area

AREA = 64 * 2**20
_BYE = 10.0


class ZygoteDied(Exception):
    """The zygote is gone; the worker that owns it starts anew."""


@dataclass(frozen=True)
class ProcessSpec:
    """What the processes of a zygote do."""

    prepare: Callable[[], None]
    """Called once in the zygote: everything that all its processes share."""
    main: Callable[[socket.socket, list[Area], Sandbox], None]
    """Called in each process, which it must lock in; answers questions until the connection closes."""
    areas: int = 2
    """Pieces of shared host memory that each process gets."""
    gpu: bool = False
    """Whether the processes use a GPU; the zygote itself never does, since CUDA does not survive a fork."""


class Zygote:
    """The owner's handle on its zygote. Its methods may be called from several threads."""

    def __init__(self, limits: Limits, spec: ProcessSpec):
        self.spec, self._lock = spec, threading.Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if not self.pid:
            ours.close()
            _serve(theirs, limits, spec)
        theirs.close()
        self._control = ours

    def wait_ready(self) -> list[str]:
        """Blocks until processes can be started; returns the sandbox locks that this machine lacks."""
        return json.loads(self._hear())["missing"]

    def start(self, environment: dict[str, str] | None = None) -> Process:
        """A fresh process, with these variables in its environment besides the zygote's."""
        ours, theirs = socket.socketpair()
        areas = [Area.create(f"area {number}", AREA) for number in range(self.spec.areas)]
        order = b"start" + json.dumps(environment or {}).encode()
        pid = self._order(order, [theirs.fileno(), *(area.handle for area in areas)])["pid"]
        theirs.close()
        return Process(self, pid, ours, areas)

    def reap(self, pid: int, gone: bool) -> int:
        """Ends a process and what it left behind; returns how it ended (waitpid's status).

        Args:
            gone: it has closed its connection, so it gets a moment to end in its own way; else the answer does not
                wait for its end and the status is 0.
        """
        return self._order((b"gone" if gone else b"kill") + str(pid).encode())["status"]

    def _order(self, order: bytes, handles: list[int] | None = None) -> dict[str, Any]:
        with self._lock:
            try:
                socket.send_fds(self._control, [order], handles or [])
            except OSError as error:
                raise ZygoteDied from error
            return json.loads(self._hear())

    def _hear(self) -> bytes:
        try:
            answer = self._control.recv(4096)
        except OSError as error:
            raise ZygoteDied from error
        if not answer:
            raise ZygoteDied
        return answer


class Process:
    """One process: questions go through `ask`, tensors through the areas."""

    def __init__(self, zygote: Zygote, pid: int, connection: socket.socket, areas: list[Area]):
        self.pid, self.areas = pid, areas
        # a pid may name another process by the time of a signal
        self._handle = os.pidfd_open(pid) if zygote.spec.gpu else -1
        self._zygote, self._connection, self._own = zygote, connection, areas
        self._asker = framing.Asker(connection)

    @property
    def inputs(self) -> Area:
        return self.areas[0]

    @property
    def outputs(self) -> Area:
        return self.areas[1]

    def ask(self, question: dict[str, Any], deadline: float) -> dict[str, Any]:
        return self._asker.ask(question, deadline)

    def post(self, question: dict[str, Any], deadline: float) -> None:
        """Asks without waiting; `collect` returns the answer."""
        self._asker.post(question, deadline)

    def collect(self, deadline: float) -> dict[str, Any]:
        return self._asker.collect(deadline)

    def answered(self, seconds: float) -> bool:
        """Waits at most so long for an answer (or the end of the process). Whether there is one."""
        return bool(select.select([self._connection], [], [], seconds)[0])

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """None of its threads runs meanwhile; for processes with a GPU."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGCONT)

    @property
    def gone(self) -> bool:
        """Whether an ended process that is not `reaped` yet has given back what it had on a GPU."""
        return bool(select.select([self._handle], [], [], 0.0)[0])

    def reaped(self, seconds: float) -> None:
        """Waits, at most so long, until an ended process has given back what it had on a GPU."""
        select.select([self._handle], [], [], seconds)
        os.close(self._handle)

    def end(self) -> str:
        """Kills the process; where it has a GPU, `reaped` must follow.

        Returns how it had ended by itself (`signal SIGSEGV`, `exit 0`), or nothing.
        """
        gone = self._over()
        self._connection.close()
        status = self._zygote.reap(self.pid, gone)
        for area in self._own:
            area.close()
        if not gone:
            return ""
        code = os.waitstatus_to_exitcode(status)
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"

    def _over(self) -> bool:
        self._connection.settimeout(0)
        try:
            return not self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True


def _serve(control: socket.socket, limits: Limits, spec: ProcessSpec) -> None:
    sandbox.die_with_parent()
    sandbox.adopt_orphans()
    sandbox.hide_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spec.prepare()
    box = Sandbox(limits, spec.gpu)
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"missing": box.missing_locks()}).encode())
    brood = ChildReaper()
    while True:
        if not select.select([control], [], [], 1.0)[0]:
            brood.reap()
            continue
        order, handles, *_ = socket.recv_fds(control, 4096, 1 + spec.areas)
        word, rest = order[:5], order[5:]
        if not order:
            os._exit(0)
        if word == b"start":
            pid = os.fork()
            if not pid:
                control.close()
                os.environ.update(json.loads(rest))
                _run(spec, socket.socket(fileno=handles[0]), [Area(handle, AREA) for handle in handles[1:]], box)
            brood.join(pid)
            for handle in handles:
                os.close(handle)
            control.send(json.dumps({"pid": pid}).encode())
        else:
            status = brood.dismiss(int(order[4:]), patience=1.0 if order.startswith(b"gone") else 0.0)
            control.send(json.dumps({"status": status}).encode())
            brood.reap()


def _run(spec: ProcessSpec, connection: socket.socket, areas: list[Area], box: Sandbox) -> None:
    try:
        spec.main(connection, areas, box)
    except BaseException:
        os._exit(70)


class ChildReaper:
    """The zygote's children."""

    def __init__(self) -> None:
        self._alive: dict[int, int | None] = {}
        """Status by pid, None while it runs. A pid leaves when it is dismissed and has ended."""
        self._dying: set[int] = set()

    def join(self, pid: int) -> None:
        self._alive[pid] = None

    def dismiss(self, pid: int, patience: float) -> int:
        """How a process ended by itself within `patience` seconds, else 0: it is killed and reaped in time."""
        deadline = time.monotonic() + patience
        while self._alive.get(pid) is None and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.0005)
        status = self._alive.pop(pid, None)
        if status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._dying.add(pid)
        return status or 0

    def reap(self) -> None:
        """Notes who has ended, and kills every descendant that nobody knows.

        The zygote gives up (and is replaced) where one does not die.
        """
        deadline = time.monotonic() + _BYE
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid in self._alive:
                self._alive[pid] = status
            self._dying.discard(pid)
            if pid:
                continue
            strangers = _children() - self._alive.keys() - self._dying
            if not strangers:
                return
            for child in strangers:
                os.kill(child, signal.SIGKILL)
            if time.monotonic() > deadline:
                os._exit(71)
            time.sleep(0.001)


def _children() -> set[int]:
    """The pids of this process's children."""
    me = os.getpid()
    listed = Path(f"/proc/self/task/{me}/children")
    if listed.exists():
        return {int(pid) for pid in listed.read_text().split()}
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == me:
                found.add(int(stat.parent.name))
    return found
