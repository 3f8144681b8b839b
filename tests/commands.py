"""`python train.py ...` and `python evaluate.py ...` for tests, without five seconds of imports per command.

One process imports what both scripts import and then forks for every command. A command has its own session, working
directory, environment and output files, and runs its script as `__main__`, as the shell would. tests/test_train.py and
tests/test_evaluate.py start each script once by the real command.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins

from drkernel.training import ranks
from tests import fork_server, judge_workers
from tests.fork_server import ROOT


class Command:
    """A command that runs: what the tests need of subprocess.Popen."""

    def __init__(self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]):
        self._output = Path(tempfile.mkdtemp())
        self._connection = fork_server.connect(_server())
        self._lines = self._connection.makefile("r", encoding="utf-8")
        request = {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment)}
        request |= {"output": str(self._output), "workers": judge_workers.address()}
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        self.pid = int(self._lines.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while the command runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.returncode = int(self._lines.readline())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._connection], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0, self.output.encode())
        code = self.poll()
        assert code is not None
        return code

    @property
    def output(self) -> str:
        """What it wrote so far: standard output, then standard error."""
        return self.stdout + self.stderr

    @property
    def stdout(self) -> str:
        return (self._output / "1").read_text()

    @property
    def stderr(self) -> str:
        return (self._output / "2").read_text()

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the command and every process that it started."""
        os.killpg(self.pid, number)


def run(
    arguments: Sequence[str], cwd: Path = ROOT, environment: Mapping[str, str] | None = None, timeout: float = 300
) -> Command:
    """Run `python ARGUMENTS` to its end. environment: without it this process's."""
    command = Command(arguments, cwd, os.environ if environment is None else environment)
    command.wait(timeout)
    return command


@functools.cache
def _server() -> str:
    """The socket of this process's server, which ends with this process."""
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return fork_server.start("tests.commands", {**os.environ, "PYTHONPATH": ":".join(paths)})


_IMPORTED = (
    *("train", "evaluate", "drkernel.policy.engines.transformers_engine", "transformers.models.qwen3.modeling_qwen3"),
    *("pandas", "pyarrow.compute", "pytest", "functorch.compile", "torch._dynamo.backends.debugging"),
)
"""What scripts and ranks import: the second line as late as they need it."""


def prepare() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    Plugins.instance()  # Hydra's, which it looks for in every command


def handle(connection: socket.socket) -> None:
    """Become two processes: one that reports the exit code, and the command itself."""
    request = json.loads(connection.makefile("r", encoding="utf-8").readline())
    if child := os.fork():
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(f"{child}\n".encode())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            connection.sendall(f"{code}\n".encode())
        os._exit(0)
    connection.close()
    execute(**request)


def execute(arguments: list[str], cwd: str, environment: dict[str, str], output: str, workers: str) -> None:
    """Become `python ARGUMENTS`."""
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number in (1, 2):
        os.dup2(os.open(f"{output}/{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    if Path("/dev/nvidiactl").exists():  # CUDA does not survive a fork, if an import has so much as counted devices
        os.execv(sys.executable, [sys.executable, *arguments])
    sys.argv, sys.orig_argv[1:] = arguments, arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    ranks._start = Rank  # type: ignore[assignment, misc]
    judge_workers.use(workers)
    runpy.run_path(arguments[0], run_name="__main__")


class Rank:
    """A rank that a command launches: forked, too. What `ranks.launch` needs of subprocess.Popen.

    tests/training/test_ranks.py starts ranks by the real command.
    """

    def __init__(self, rank: int, size: int, port: int):
        info = ranks.RankInfo(rank, size, rank, size, "127.0.0.1", port)
        launcher = os.getpid()
        self.pid, self._code = os.fork(), None
        if self.pid:
            return
        code = 1
        try:
            os.setsid()
            for number in ranks.FORWARDED_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            os.environ.update(info.environment() | {ranks.LAUNCHER: str(launcher)})
            GlobalHydra.instance().clear()
            runpy.run_path(sys.argv[0], run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)
