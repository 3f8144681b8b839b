"""The zygote: a process with torch and Triton imported that forks one-shot processes for submissions, and reaps them.

A worker process owns it through `Zygote`, and each forked process through `Process`. The zygote never executes
submitted code itself and holds no secret: it is forked before its worker learns any.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from drkernel.judge.boundary import framing, sandbox
from drkernel.judge.boundary.sandbox import Limits, Sandbox
from drkernel.judge.boundary.shared_tensors import Area, HostArea

AREA_BYTES = 64 * 2**20
_REAP_S = 10.0
"""Longest time that killed descendants may take to end."""
_GRACE_S = 1.0
"""Time to end in its own way, for a process that has closed its connection."""


class ZygoteDied(Exception):
    """The zygote is gone; the worker that owns it starts anew."""


@dataclass(frozen=True)
class ProcessSpec:
    """What the processes of a zygote do. The zygote imports the functions after its fork, so its owner need not."""

    prepare: str
    """`module:function`, called once in the zygote: sets up everything that all its processes share."""
    main: str
    """`module:function`, called in each process with its connection, areas and Sandbox. It must lock the process in,
    and answers requests until the connection closes."""
    areas: int = 2
    """Areas of shared host memory that each process gets."""
    gpu: bool = False
    """Whether the processes use a GPU; the zygote itself never does, since CUDA does not survive a fork."""


class Zygote:
    """Starts a zygote and controls it. Its methods may be called from several threads."""

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
        return json.loads(self._receive())["missing"]

    def start(self, environment: dict[str, str] | None = None) -> Process:
        """A fresh process, with these variables in its environment besides the zygote's."""
        ours, theirs = socket.socketpair()
        areas = [HostArea.create(f"area {number}", AREA_BYTES) for number in range(self.spec.areas)]
        command = b"start" + json.dumps(environment or {}).encode()
        pid = self._command(command, [theirs.fileno(), *(area.handle for area in areas)])["pid"]
        theirs.close()
        return Process(self, pid, ours, areas)

    def reap(self, pid: int, closed: bool) -> int:
        """Ends a process and what it left behind; returns how it ended (waitpid's status).

        Args:
            closed: it has closed its connection, so it gets a moment to end in its own way. Otherwise this does not
                wait for its end, and the status is 0.
        """
        return self._command((b"gone" if closed else b"kill") + str(pid).encode())["status"]

    def _command(self, command: bytes, handles: list[int] | None = None) -> dict[str, Any]:
        with self._lock:
            try:
                socket.send_fds(self._control, [command], handles or [])
            except OSError as error:
                raise ZygoteDied from error
            return json.loads(self._receive())

    def _receive(self) -> bytes:
        try:
            reply = self._control.recv(4096)
        except OSError as error:
            raise ZygoteDied from error
        if not reply:
            raise ZygoteDied
        return reply


class Process:
    """One forked process: requests go through its connection, tensors through `areas`.

    With a GPU, the examiner replaces `areas` by areas in device memory.
    """

    def __init__(self, zygote: Zygote, pid: int, connection: socket.socket, areas: Sequence[Area]):
        self.pid, self.areas = pid, list(areas)
        self.handshake: Any = None
        self.activity: Any = None
        """On a GPU: the examiner's side of this process's calls, and what it sees of their work; see cuda/handshake.py
        and cuda/activity.py."""
        # a pid may name another process by the time of a signal
        self._handle = os.pidfd_open(pid) if zygote.spec.gpu else -1
        self._zygote, self._connection, self._own_areas = zygote, connection, areas
        self._requester = framing.Requester(connection)

    @property
    def inputs(self) -> Area:
        return self.areas[0]

    @property
    def outputs(self) -> Area:
        return self.areas[1]

    def request(self, body: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Sends a request and returns the reply; see framing.Requester."""
        return self._requester.request(body, deadline)

    def send_request(self, body: dict[str, Any], deadline: float) -> None:
        """Sends a request; `receive_reply` must follow."""
        self._requester.send_request(body, deadline)

    def receive_reply(self, deadline: float) -> dict[str, Any]:
        """The reply to the request that was sent."""
        return self._requester.receive_reply(deadline)

    def reply_ready(self, seconds: float) -> bool:
        """Waits at most so long for a reply, or for the end of the process. Whether there is one."""
        return bool(select.select([self._connection], [], [], seconds)[0])

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stops all its threads meanwhile, by SIGSTOP; for processes with a GPU."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGCONT)

    @property
    def released(self) -> bool:
        """Whether a process that was ended has given back what it had on a GPU."""
        return bool(select.select([self._handle], [], [], 0.0)[0])

    def wait_released(self, seconds: float) -> None:
        """Waits, at most so long, until a process that was ended has given back what it had on a GPU. Called once."""
        select.select([self._handle], [], [], seconds)
        os.close(self._handle)

    def starved_s(self) -> float:
        """Seconds for which its main thread has waited for a processor; 0 where the kernel does not say."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def end(self) -> str:
        """Kills the process; where it has a GPU, `wait_released` must follow.

        Returns how it had ended by itself (`signal SIGSEGV`, `exit 0`), or nothing.
        """
        closed = self._is_closed()
        self._connection.close()
        status = self._zygote.reap(self.pid, closed)
        for area in self._own_areas:
            area.close()
        if not closed:
            return ""
        code = os.waitstatus_to_exitcode(status)
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"

    def _is_closed(self) -> bool:
        """Whether the process has closed its end of the connection."""
        self._connection.settimeout(0)
        try:
            return not self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True


def _serve(control: socket.socket, limits: Limits, spec: ProcessSpec) -> NoReturn:
    """The life of the zygote: obeys its owner's commands until the owner closes the control socket or dies."""
    sandbox.die_with_parent()
    sandbox.adopt_orphans()
    sandbox.go_first()
    sandbox.hide_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare, main = _imported(spec.prepare), _imported(spec.main)
    prepare()
    box = Sandbox(limits, spec.gpu)
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"missing": box.missing_locks()}).encode())
    children = ChildReaper()
    while True:
        if not select.select([control], [], [], 1.0)[0]:
            children.reap_all()
            continue
        command, handles, *_ = socket.recv_fds(control, 4096, 1 + spec.areas)
        word, rest = command[:5], command[5:]
        if not command:
            os._exit(0)
        if word == b"start":
            pid = os.fork()
            if not pid:
                control.close()
                os.environ.update(json.loads(rest))
                areas = [HostArea(handle, AREA_BYTES) for handle in handles[1:]]
                _run(main, socket.socket(fileno=handles[0]), areas, box)
            children.add(pid)
            for handle in handles:
                os.close(handle)
            control.send(json.dumps({"pid": pid}).encode())
        else:
            status = children.reap(int(command[4:]), wait_s=_GRACE_S if command.startswith(b"gone") else 0.0)
            control.send(json.dumps({"status": status}).encode())
            children.reap_all()


def _imported(name: str) -> Callable[..., None]:
    """The function that `module:function` names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _run(main: Callable[..., None], connection: socket.socket, areas: list[HostArea], box: Sandbox) -> None:
    try:
        main(connection, areas, box)
    except BaseException:
        os._exit(70)


class ChildReaper:
    """Reaps the zygote's children and kills every descendant that they leave behind."""

    def __init__(self) -> None:
        self._statuses: dict[int, int | None] = {}
        """Status by pid, None while it runs. A pid leaves when it is reaped."""
        self._terminating: set[int] = set()
        """Pids that were killed and have not ended yet."""

    def add(self, pid: int) -> None:
        self._statuses[pid] = None

    def reap(self, pid: int, wait_s: float) -> int:
        """How a process ended by itself within `wait_s` seconds; otherwise 0, and it is killed, to be reaped later."""
        deadline = time.monotonic() + wait_s
        while self._statuses.get(pid) is None and time.monotonic() < deadline:
            self.reap_all()
            time.sleep(0.0005)
        status = self._statuses.pop(pid, None)
        if status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._terminating.add(pid)
        return status or 0

    def reap_all(self) -> None:
        """Notes which children have ended, and kills every descendant that was not added.

        Where one does not die, the zygote gives up, and its worker is replaced.
        """
        deadline = time.monotonic() + _REAP_S
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid in self._statuses:
                self._statuses[pid] = status
            self._terminating.discard(pid)
            if pid:
                continue
            unknown = _children() - self._statuses.keys() - self._terminating
            if not unknown:
                return
            for child in unknown:
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
