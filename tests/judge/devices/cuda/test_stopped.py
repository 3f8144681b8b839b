"""What happens to a runner while another examiner has the GPU for itself: it stands still. Without a GPU."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from drkernel.judge.boundary.sandbox import Limits
from drkernel.judge.trusted.processes.zygote import Process, ProcessSpec, Zygote
from tests.judge.devices.cuda.test_gpu_lock import HUNG_S, MOMENT_S, soon


def nothing() -> None:
    """There is nothing to set up."""


def count(connection, areas, sandbox) -> None:
    """Two threads that count in shared memory."""
    counters = areas[0].bytes(0, 16).view(torch.int64)

    def forever(i: int) -> None:
        while True:
            counters[i] += 1
            time.sleep(0.0002)

    threading.Thread(target=forever, args=(0,), daemon=True).start()
    forever(1)


@pytest.fixture(scope="module")
def counting():
    zygote = Zygote(Limits(), ProcessSpec(f"{__name__}:nothing", f"{__name__}:count", areas=1, gpu=True))
    zygote.wait_ready()
    return zygote


@pytest.fixture
def runner(counting) -> Iterator[SimpleNamespace]:
    process = counting.start()
    counters = process.inputs.bytes(0, 16).view(torch.int64)
    yield SimpleNamespace(process=process, goes_on=lambda: _goes_on(counters))
    with contextlib.suppress(OSError):
        process.end()


def _goes_on(counters: torch.Tensor) -> bool:
    before = counters.clone()
    time.sleep(MOMENT_S)
    return bool((counters > before).all())


def _stands(process: Process) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_no_thread_of_a_stopped_process_runs(runner):
    assert soon(runner.goes_on)
    with pytest.raises(ZeroDivisionError), runner.process.stopped():
        assert soon(lambda: _stands(runner.process))
        assert not runner.goes_on()
        _ = 1 / 0
    assert soon(runner.goes_on), "also after an error of who stopped it"


def test_to_stop_a_process_that_has_ended_is_no_error(runner):
    os.kill(runner.process.pid, signal.SIGKILL)
    assert runner.process.reply_ready(HUNG_S) and runner.process.end() == "signal SIGKILL"
    with runner.process.stopped():
        pass


def test_a_stopped_process_can_be_ended_and_reaped(runner):
    process = runner.process
    with process.stopped():
        assert not process.released
        process.end()
    assert soon(lambda: process.released)
    began = time.monotonic()
    process.wait_released(HUNG_S)
    assert time.monotonic() - began < HUNG_S / 2
