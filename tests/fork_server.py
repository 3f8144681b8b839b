"""A process that has imported what is slow to import and forks for each connection; see judge_workers and commands."""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SERVE = "import sys; sys.path.append(sys.argv[1]); from tests.fork_server import serve; serve(*sys.argv[2:])"
"""A path may be all that finds tests/: workers run without the working directory on theirs."""


def start(module: str, environment: Mapping[str, str]) -> str:
    """The socket of a new process that serves a module, and ends with this one.

    The module's `prepare` imports what is slow to import, its `handle` is what becomes of the process of a connection.
    """
    path = str(Path(tempfile.mkdtemp()) / "socket")
    command = [sys.executable, "-c", _SERVE, str(ROOT), module, path]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)
    while not Path(path).exists():
        assert process.poll() is None, f"{module} does not start"
        time.sleep(0.02)
    return path


def connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection


def serve(module: str, path: str) -> None:
    """Call the module's `handle` for each connection, and return, in a fork of this process as it is now."""
    served = importlib.import_module(module)
    served.prepare()
    sys.path.pop()  # what _SERVE has put there
    gc.collect()
    gc.freeze()
    parent, listener = os.getppid(), socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.new")
    listener.listen()
    os.rename(f"{path}.new", path)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for these processes
    while os.getppid() == parent:
        if not select.select([listener], [], [], 1.0)[0]:
            continue
        connection = listener.accept()[0]
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return served.handle(connection)
