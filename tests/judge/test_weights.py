"""Wrong answers that default weights hide. Whoever packs weights is asked with weights that are constructed otherwise;
whoever does not has no other weights to choose from."""

from __future__ import annotations

import pytest

from drkernel.types import Task

pytestmark = pytest.mark.slow

TASK = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(2e-7 * torch.ones(width))
    def forward(self, x):
        return 2 + torch.tanh(x) + self.scale
def get_inputs():
    return [torch.randn(64, 32)]
def get_init_inputs():
    return [32]
"""
ANSWER = """
import torch
from torch import nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, s_ptr, o_ptr, n, w, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    s = tl.load(s_ptr + i % w, mask=i < n)
    tl.store(o_ptr + i, 1 + 2 * tl.sigmoid(2 * x) + {term}, mask=i < n)

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(2e-7 * torch.ones(width))
        self.packed = [2.0 * self.scale.detach()]

    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, {given}, out, x.numel(), x.shape[1], BLOCK=256)
        return out
"""


@pytest.mark.parametrize(
    ("term", "given", "right"),
    [("s", "self.scale", True), ("0.5 * s", "self.packed[0]", True), ("0.0 * s", "self.scale", False)],
)
def test_a_small_scale_must_not_be_left_out(judge, term, given, right):
    verdict = judge.judge(Task("scaled", TASK), ANSWER.format(term=term, given=given))
    assert verdict.ok == right, verdict.detail
    if not right:
        assert (verdict.status, verdict.reason) == ("incorrect", "wrong_values")
