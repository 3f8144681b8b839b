"""The pipeline of the GPU judge where no GPU starts: nothing hangs, nothing is lost, nothing stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

from drkernel.judge import Judge
from drkernel.judge.cuda import pipeline
from drkernel.types import DrKernelError
from tests.judge.examples import descendants, examples, tasks

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
RELU = next(example for example in examples("honest") if example.name.startswith("90"))


def scratch() -> list[Path]:
    return [path for base in ("/dev/shm", "/tmp") for path in Path(base).glob(f"{pipeline._PREFIX}{os.getpid()}-*")]


def test_without_a_gpu_the_judge_says_so_at_once(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(DrKernelError, match=r"cuda.*needs a GPU.*simulated"):
        Judge(device="cuda")
    with Judge(device="auto", workers=1) as judge:
        assert judge.judge(tasks()["relu"], RELU.source).device.startswith("simulated")


def test_a_gpu_that_does_not_start_ends_its_work_with_one_line():
    before = descendants()
    with Judge(device="cuda", gpus=["0"], workers=1) as judge:
        pending = [judge.submit(tasks()["relu"], RELU.source + f"# {n}") for n in range(3)]
        for future in pending:
            with pytest.raises(DrKernelError, match="no examiner starts on GPU 0") as caught:
                future.result(timeout=60)
            assert "\n" not in str(caught.value)
        waiting = judge.submit(tasks()["softmax"], RELU.source)
    with pytest.raises(BaseException, match=r"no examiner|closed|^$"):
        waiting.result(timeout=5)
    assert descendants() <= before and not scratch()


def test_what_a_killed_judge_left_is_swept(tmp_path):
    dead, alive = (tmp_path / f"{pipeline._PREFIX}{pid}-x" for pid in (2**22 + 1, os.getpid()))
    for folder in (dead, alive, tmp_path / "other"):
        folder.mkdir()
    pipeline._sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([alive.name, "other"])
    shutil.rmtree(alive)
