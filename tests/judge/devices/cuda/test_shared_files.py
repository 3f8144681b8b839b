"""The files by which processes share a GPU: the same for all users and jobs of a machine. No GPU."""

from __future__ import annotations

import os
import stat
import tempfile

import pytest

from drkernel.judge.devices.cuda import gpu_lock
from drkernel.judge.devices.cuda.gpu_lock import GpuLock
from drkernel.judge.devices.cuda.memory_ledger import MemoryLedger
from drkernel.types import DrKernelError


@pytest.mark.parametrize("what", ["compute", "memory"])
def test_users_and_jobs_of_a_machine_meet_at_the_same_files(monkeypatch, tmp_path, what):
    monkeypatch.setattr(gpu_lock, "FOLDER", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "of this job"))
    before = os.umask(0o077)
    try:
        if what == "compute":
            gpu_lock.gpu_lock("GPU-1").acquire(exclusive=True)
        else:
            with MemoryLedger("GPU-1", 10).hold(5):
                pass
    finally:
        os.umask(before)
    found = list(tmp_path.iterdir())
    assert found and all(stat.S_IMODE(path.stat().st_mode) == 0o666 for path in found), "other users cannot open it"


def test_a_file_that_cannot_be_opened_is_one_line(tmp_path):
    (tmp_path / "lock.entry.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DrKernelError, match=r"lock\.entry\.lock: .*; expected a file that this user may change"):
        GpuLock(tmp_path / "lock")
