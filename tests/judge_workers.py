"""Worker processes of simulated judges for tests, without five seconds of imports per worker.

One process imports what a worker imports and then forks for each: a worker has the environment, the descriptors and the
working directory that it would have, and ends with the process that asked for it. Tests of the processes themselves
start them by the real command: those with the fixture `workers_by_command`, and one of each command line.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback

from drkernel.judge.devices.simulated import backend
from drkernel.judge.trusted.processes import worker_process
from tests import fork_server

_WORKER = "drkernel.judge.trusted.processes.worker"
_IMPORTED = (_WORKER, "torch._dynamo", "triton.runtime.interpreter", "einops.layers.torch")
_LOCK = threading.Lock()
_by_command = worker_process._start


class Process:
    """A worker: what `worker_process.Worker` needs of subprocess.Popen."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            self._connection.send(bytes([number]))

    def kill(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended
            self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._connection.recv(16) or -signal.SIGKILL)  # it ends with its reporter
            self._connection.close()
        return self.returncode


def use(server: str | None = None) -> None:
    """Fork the workers of judges that this process makes. server: the socket of another process's server."""
    worker_process._start = functools.partial(_start, server)  # type: ignore[assignment]


def by_command() -> None:
    """Start workers by the real command again."""
    worker_process._start = _by_command


def _start(server: str | None, environment: dict[str, str]) -> tuple[socket.socket, Process | subprocess.Popen]:
    """As worker_process._start. A worker with an environment of its own, as on a GPU, is started by the command."""
    if environment != _environment():
        return _by_command(environment)
    connection = fork_server.connect(server or address())
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(connection, [os.getcwd().encode()], [theirs.fileno(), 1, 2])
    return ours, Process(connection)


def _environment() -> dict[str, str]:
    return worker_process.base_environment() | backend._ENVIRONMENT


def address() -> str:
    """The socket of this process's server, which ends with this process."""
    with _LOCK:  # judges start their workers in threads
        return _address()


@functools.cache
def _address() -> str:
    return fork_server.start("tests.judge_workers", _environment())


def prepare() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)


def handle(connection: socket.socket) -> None:
    """Become two processes: one that passes signals on and reports the exit code, and the worker."""
    cwd, descriptors, *_ = socket.recv_fds(connection, 4096, 3)
    if child := os.fork():
        for descriptor in descriptors:
            os.close(descriptor)
        _report(connection, child)
    connection.close()
    _become_worker(cwd.decode(), *descriptors)


def _report(connection: socket.socket, child: int) -> None:
    """Until the worker ends. It ends at the latest when whoever asked for it closes the connection."""
    os.setsid()
    handle = os.pidfd_open(child)
    while handle not in select.select([handle, connection], [], [])[0]:
        received = connection.recv(1)
        os.kill(child, received[0] if received else signal.SIGKILL)
        if not received:
            break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        connection.send(str(code).encode())
    os._exit(0)


def _become_worker(cwd: str, request: int, stdout: int, stderr: int) -> None:
    """Become `python -m drkernel.judge.trusted.processes.worker REQUEST`."""
    from drkernel.judge.boundary.framing import PeerClosed
    from drkernel.judge.trusted.processes import worker
    from drkernel.judge.trusted.processes.zygote import ZygoteDied

    code = 1
    try:
        os.setsid()
        os.chdir(cwd)
        for number, descriptor in ((1, stdout), (2, stderr)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.argv = ["worker", str(request)]
        worker.main()
        code = 0
    except (PeerClosed, ZygoteDied):
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
