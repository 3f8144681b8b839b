"""A runner reaches one GPU, whose device file the driver names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drkernel.judge.boundary.cuda import setup
from drkernel.judge.trusted.processes.worker_process import base_environment

FACTS = "Model: \t NVIDIA H200\nGPU UUID: \t GPU-{uuid}\nDevice Minor: \t {minor}\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Two GPUs whose device files are numbered the other way round."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (tmp_path / "dev/nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "tty"):
        (tmp_path / "dev" / name).touch()
    for bus, uuid, minor in (("0000:1a:00.0", "aa-1", 1), ("0000:2b:00.0", "bb-2", 0)):
        folder = tmp_path / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(FACTS.format(uuid=uuid, minor=minor))
    return tmp_path


@pytest.mark.parametrize(
    ("uuid", "own", "visible"), [("aa-1", {"nvidia1"}, "GPU-aa-1"), ("cc-3", {"nvidia0", "nvidia1"}, "1")]
)
def test_a_runner_gets_its_gpu_or_all_where_nobody_says_which_it_is(machine, uuid, own, visible):
    environment = os.environ | setup.only(uuid, machine)
    found = {Path(file).name for file in environment[setup.DEVICES].split(os.pathsep)}
    assert found == own | {"nvidiactl", "nvidia-uvm"} and environment["CUDA_VISIBLE_DEVICES"] == visible


def test_nothing_is_cached_in_a_home_that_no_worker_has():
    environment = base_environment() | setup.ENVIRONMENT
    assert environment["USE_PYTORCH_KERNEL_CACHE"] == "0" and environment["CUDA_CACHE_DISABLE"] == "1"
