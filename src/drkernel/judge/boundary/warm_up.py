"""The small programs that processes run once before their first request.

Whatever torch, Triton and CUDA import, compile or allocate lazily is there afterwards: in the zygote, and so in each
process that is forked from it, or in a runner on a GPU before it is sealed.
"""

RUNNER = """
import einops.layers.torch
import torch
import triton
import triton.language as tl

@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x):
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 32),)](x, y, x.numel(), BLOCK=32)
        return y + self.norm(x.view(-1, 4)).relu().view(-1)
"""
"""For runners of the simulated device. Its kernel's site is `double:7`."""

CUDA_RUNNER = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(64))

    def forward(self, x):
        return torch.empty_like(x).copy_(x + self.weight)
"""
"""For runners on a GPU, which may launch no kernel of their own before the submission's are there."""

TRACER = """
import torch
import triton
import triton.language as tl

@triton.jit
def product(x, y, n: tl.constexpr):
    i = tl.arange(0, n)
    at = i[:, None] * n + i[None, :]
    z = tl.zeros((n, n), tl.float32)
    for _ in range(4):
        a = tl.load(x + at)
        z = tl.dot(a, a, z)
    tl.store(y + at, tl.exp(z - tl.max(z, 1)[:, None]) + tl.sum(z, 0)[None, :])

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64))

    def forward(self, x):
        y = torch.empty_like(x)
        product[(1,)](x, y, n=64)
        return (y + self.norm(x[1:])[0]).relu().softmax(-1).clone()
"""
"""For tracers. It has one kernel, which goes through most passes of the compiler."""

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

rows, cols = 64, 64

def get_inputs():
    return [torch.rand(rows, cols)]

def get_init_inputs():
    return []
"""
"""For examiners of the simulated device: a task, prepared with the small sizes rows = 8, cols = 32."""

CALIBRATION = """
import numpy
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(1024, 1024)]

def get_init_inputs():
    return []
"""
"""For examiners on a GPU: a task, once `ModelNew` is called `Model`, and an honest submission to it, whose times are
those that the trusted clock is calibrated with."""
