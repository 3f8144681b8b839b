"""A process with torch and Triton imported that forks one runner per submission, and buries it.

The zygote never executes submitted code itself and holds no secret: it is forked before the examiner learns any.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch

from drkernel.judge import protocol, runner, sandbox
from drkernel.judge.exchange import Area
from drkernel.judge.sandbox import Limits, Sandbox

AREA = 64 * 2**20
_BYE = 10.0


class ZygoteDied(Exception):
    """The zygote is gone; the worker that owns it starts anew."""


class Zygote:
    """The examiner's handle on its zygote."""

    def __init__(self, limits: Limits):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if not self.pid:
            ours.close()
            _serve(theirs, limits)
        theirs.close()
        self._control = ours

    def wait_ready(self) -> list[str]:
        """Blocks until runners can be started; returns the sandbox locks that this machine lacks."""
        return json.loads(self._hear())["missing"]

    def start(self) -> Process:
        ours, theirs = socket.socketpair()
        inputs, outputs = Area.create("inputs", AREA), Area.create("outputs", AREA)
        try:
            socket.send_fds(self._control, [b"start"], [theirs.fileno(), inputs.handle, outputs.handle])
            self._hear()
        except OSError as error:
            raise ZygoteDied from error
        theirs.close()
        return Process(self, ours, inputs, outputs)

    def bury(self, gone: bool) -> int:
        """Ends the runner and all that it left behind; returns how it ended (waitpid's status).

        Args:
            gone: the runner has closed its connection, so it gets a moment to end in its own way.
        """
        try:
            self._control.send(b"gone" if gone else b"kill")
        except OSError as error:
            raise ZygoteDied from error
        return json.loads(self._hear())["status"]

    def _hear(self) -> bytes:
        try:
            answer = self._control.recv(4096)
        except OSError as error:
            raise ZygoteDied from error
        if not answer:
            raise ZygoteDied
        return answer


class Process:
    """One runner: questions go through `ask`, tensors through `inputs` and `outputs`."""

    def __init__(self, zygote: Zygote, connection: socket.socket, inputs: Area, outputs: Area):
        self.inputs, self.outputs = inputs, outputs
        self._zygote, self._connection = zygote, connection
        self._asker = protocol.Asker(connection)

    def ask(self, question: dict[str, Any], deadline: float) -> dict[str, Any]:
        return self._asker.ask(question, deadline)

    def end(self) -> str:
        """Kills the runner. Returns how it had ended by itself (`signal SIGSEGV`, `exit 0`), or nothing."""
        gone = self._over()
        self._connection.close()
        status = self._zygote.bury(gone)
        self.inputs.close()
        self.outputs.close()
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


def _serve(control: socket.socket, limits: Limits) -> None:
    sandbox.die_with_parent()
    sandbox.adopt_orphans()
    sandbox.hide_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    runner.prepare()
    _warm_up()
    box = Sandbox(limits)
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"missing": box.missing_locks()}).encode())
    pid = 0
    while True:
        command, handles, *_ = socket.recv_fds(control, 64, 3)
        if not command:
            os._exit(0)
        if command == b"start":
            pid = os.fork()
            if not pid:
                control.close()
                areas = [Area(handle, AREA) for handle in handles[1:]]
                _run(socket.socket(fileno=handles[0]), *areas, box)
            for handle in handles:
                os.close(handle)
            control.send(json.dumps({"pid": pid}).encode())
        else:
            status = _end_of(pid, patience=1.0 if command == b"gone" else 0.0)
            control.send(json.dumps({"status": status}).encode())
            _bury_orphans()


def _run(connection: socket.socket, inputs: Area, outputs: Area, box: Sandbox) -> None:
    try:
        runner.main(connection, inputs, outputs, box)
    except BaseException:
        os._exit(70)


def _end_of(pid: int, patience: float) -> int:
    """How the runner ended (waitpid's status); it is killed unless it ends by itself within `patience` seconds."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _bury_orphans() -> None:
    """Kills every descendant that still lives; the zygote gives up (and is replaced) where that takes too long."""
    deadline = time.monotonic() + _BYE
    while True:
        try:
            orphan, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not orphan:
            for child in _children():
                os.kill(child, signal.SIGKILL)
            if time.monotonic() > deadline:
                os._exit(71)
            time.sleep(0.001)


def _children() -> list[int]:
    """The pids of this process's children."""
    me, found = str(os.getpid()), []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if parent == me:
            found.append(int(stat.parent.name))
    return found


def _warm_up() -> None:
    """Answers the questions of a small exam once, so that nothing is left to be imported or set up in each runner."""
    model = runner.Runner(Area.create("warm", 2**16), Area.create("warm", 2**16))
    slot = model.inputs.put(torch.ones(64)).to_json()
    call = {"do": "call", "model": 0, "args": {"list": [{"tensor": 0}]}, "slots": [slot], "train": False, "seed": 0}
    questions = [
        {"do": "load", "source": _WARM, "name": "ModelNew"},
        {
            "do": "build",
            "model": 0,
            "args": {"list": [{"list": []}, {"dict": []}]},
            "slots": [],
            "seed": 0,
            "varied": True,
        },
        call | {"skip": [], "budget": 1e8},
        call | {"skip": ["double:6"], "budget": 1e8},
    ]
    for question in questions:
        if error := model.answer(question).get("error"):
            raise RuntimeError(f"the simulated device does not work: {error}")
    del sys.modules["submission"]


_WARM = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x):
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 32),)](x, y, x.numel(), BLOCK=32)
        return y + self.norm(x.view(-1, 4)).relu().view(-1)
"""
