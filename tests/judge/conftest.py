"""Shared by the judge's tests: one Judge per session, and the files under tasks/ and submissions/.

A Judge has one worker, since each prepares a task anew: two processes of pytest keep two processors busy.
"""

from __future__ import annotations

import pytest

from drkernel.judge import Judge
from drkernel.types import Task
from tests import judge_workers
from tests.judge import examples

collect_ignore_glob = ["submissions/*", "tasks/*"]  # never import them, for doctests or otherwise: some are harmful


@pytest.fixture(scope="session")
def tasks() -> dict[str, Task]:
    return examples.tasks()


@pytest.fixture(scope="session")
def judge():
    with Judge(
        device="simulated", workers=1, secret=b"a secret of the tests", timeout_s=8, host_memory_mib=1024
    ) as judge:
        yield judge


@pytest.fixture(scope="session")
def ungated():
    """A judge without the static gate: everything must hold without it."""
    with Judge(
        device="simulated", workers=1, secret=b"a secret of the tests", timeout_s=8, host_memory_mib=1024, gate=False
    ) as judge:
        yield judge


@pytest.fixture(scope="session")
def _by_command(tasks):
    judge_workers.by_command()
    with Judge(device="simulated", workers=1, secret=b"s", timeout_s=8, host_memory_mib=1024, gate=False) as judge:
        judge.check_task(tasks["relu"])  # the worker has started
        yield judge


@pytest.fixture
def judge_by_command(_by_command, workers_by_command):
    """A judge, without the gate, whose worker is started by the real command: in seconds, as for users."""
    return _by_command
