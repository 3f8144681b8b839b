"""An interpreter does more for a task whose reference does more, since its images cannot be made small."""

from __future__ import annotations

import subprocess
import sys

import pytest

from drkernel.judge import Judge
from drkernel.types import Task

TASK = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 64, 3, padding=1), nn.Linear(64 * 28 * 28, 1000)
    def forward(self, x):
        return self.fc(nn.functional.avg_pool2d(torch.relu(self.conv(x)), 8).flatten(1))
def get_inputs():
    return [torch.rand(64, 3, 224, 224)]
def get_init_inputs():
    return []
"""
SUBMISSION = """
import torch
from torch import nn
import triton
import triton.language as tl
@triton.jit
def conv(x_ptr, w_ptr, bias_ptr, o_ptr, M, N, C, H, W, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    c = tl.arange(0, BN)[None, :]
    b, i, j = r // (H * W), r // W % H, r % W
    total = tl.zeros((BM, BN), tl.float32)
    k = tl.arange(0, 16)
    for s in range(9):
        y, x = i + s // 3 - 1, j + s % 3 - 1
        inside = (r < M) & (k[None, :] < C) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
        part = tl.load(x_ptr + ((b * C + k[None, :]) * H + y) * W + x, mask=inside, other=0.0)
        weight = tl.load(w_ptr + (c * C + k[:, None]) * 9 + s, mask=(c < N) & (k[:, None] < C), other=0.0)
        total = tl.dot(part, weight, total, input_precision="ieee")
    total = tl.maximum(total + tl.load(bias_ptr + c, mask=c < N, other=0.0), 0.0)
    tl.store(o_ptr + ((b * N + c) * H + i) * W + j, total, mask=(r < M) & (c < N))
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 64, 3, padding=1), nn.Linear(64 * 28 * 28, 1000)
    def forward(self, x):
        B, C, H, W = x.shape
        N = self.conv.weight.shape[0]
        o = x.new_empty(B, N, H, W)
        M = B * H * W
        grid = (triton.cdiv(M, 32),)
        w, bias = self.conv.weight, self.conv.bias
        conv[grid](x.contiguous(), w, bias, o, M, N, C, H, W, BM=32, BN=triton.next_power_of_2(N))
        return self.fc(nn.functional.avg_pool2d(o, 8).flatten(1))
"""


@pytest.mark.slow
def test_a_convolution_of_large_images_in_tiles_is_no_endless_loop():
    with Judge(device="simulated", workers=1) as judge:
        verdict = judge.submit(Task("t", TASK), SUBMISSION).result()
    assert verdict.ok, verdict.detail


@pytest.mark.parametrize(("name", "patience"), [("relu", 1.0), ("matmul", 2.0), ("depthwise_conv", 2.0)])
def test_products_may_cost_twice_as_much_since_tiles_are_larger_than_small_tasks(name, patience):
    answer = subprocess.run([sys.executable, "-c", SCRIPT, name], capture_output=True, text=True, check=True)
    assert float(answer.stdout) == patience


SCRIPT = """
import sys
from drkernel.judge.boundary import aten
from drkernel.judge.boundary.construction import seed_one_generator
from drkernel.judge.devices.simulated.device import SimulatedDevice
from drkernel.judge.devices.simulated.gpus import GPUS
from tests.judge.examples import tasks

aten.install()
seed_one_generator()
print(SimulatedDevice(GPUS["H200"], b"secret").prepare(tasks()[sys.argv[1]]).patience)
"""
