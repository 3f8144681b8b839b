"""Several GPUs at once: all of them judge, and one that something else keeps busy is left out until it is free."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch

from drkernel.hardware.visible import visible_gpus
from drkernel.judge import Judge
from drkernel.judge.devices.cuda.backend import EXAMINERS_PER_GPU
from drkernel.types import Verdict
from tests.judge.examples import examples, tasks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
HONEST = next(example for example in examples("honest", "cuda") if example.name.startswith("90"))
HOG = """
import torch
x = torch.rand(8192, 8192, device="cuda")
torch.cuda.synchronize()
print(flush=True)
while True:
    for _ in range(10):
        x @ x
    torch.cuda.synchronize()
"""
RECOVERED_S = 120.0


@contextlib.contextmanager
def busy(gpu: str) -> Iterator[None]:
    hog = subprocess.Popen(
        [sys.executable, "-c", HOG], env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu}, stdout=subprocess.PIPE
    )
    hog.stdout.readline()
    try:
        yield
    finally:
        hog.kill()
        hog.communicate()


def judged(judge: Judge, name: str) -> list[Verdict]:
    pending = [judge.submit(tasks()[HONEST.task], f"{HONEST.source}\n# {name} {n}\n") for n in range(24)]
    return [future.result() for future in pending]


def wait_until_healthy(judge: Judge, gpus: list[str]) -> None:
    """Until the examiners of exactly these GPUs are in rotation."""
    backend, deadline = judge._backend, time.monotonic() + RECOVERED_S
    wanted = {worker_id for worker_id, gpu in enumerate(backend._gpus * EXAMINERS_PER_GPU) if gpu in gpus}
    while backend._healthy != wanted:
        assert time.monotonic() < deadline, f"in rotation: {backend._healthy}, expected {wanted}"
        time.sleep(0.1)


def test_a_busy_gpu_is_left_out_until_it_is_free():
    gpus = visible_gpus()[:2]
    with contextlib.ExitStack() as hog:
        hog.enter_context(busy(gpus[1]))
        with Judge(device="cuda", gpus=gpus, workers=8) as judge:
            assert all(verdict.ok for verdict in judged(judge, "before it is known"))
            wait_until_healthy(judge, gpus[:1])
            assert all(verdict.ok for verdict in judged(judge, "one GPU"))
            hog.close()
            wait_until_healthy(judge, gpus)
            assert all(verdict.ok for verdict in judged(judge, "two GPUs"))
