"""A submission to a task whose network reads module constants: it copies them, or has their values as numbers."""

from __future__ import annotations

import pytest

from drkernel.types import Task

SIZES = "ROWS, INNER, COLS = 512, 1024, 2048\n"
MODEL = """
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(INNER, COLS) / 32)
    def forward(self, a):
        {forward}
"""
TASK = f"""
import torch
from torch import nn
{SIZES}{MODEL.format(name="Model", forward="return torch.sigmoid(a @ self.weight) * COLS")}
def get_inputs():
    return [torch.randn(ROWS, INNER)]
def get_init_inputs():
    return []
"""
ANSWER = f"""
import torch
import triton
import triton.language as tl
from torch import nn
{SIZES}
@triton.jit
def scaled_sigmoid(x_ptr, o_ptr, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(o_ptr + i, tl.sigmoid(x) * factor, mask=i < n)

def scaled(x):
    o = torch.empty_like(x)
    scaled_sigmoid[(triton.cdiv(x.numel(), 512),)](x, o, COLS, x.numel(), BLOCK=512)
    return o
{MODEL.format(name="ModelNew", forward="return scaled(a @ self.weight)")}
"""
NUMBERS = ANSWER.replace(SIZES, "").replace("INNER", "1024").replace("COLS", "2048")


@pytest.mark.slow
@pytest.mark.parametrize("answer", [ANSWER, NUMBERS], ids=["copied", "numbers"])
def test_a_right_submission_is_right(judge, answer):
    verdict = judge.judge(Task("constants", TASK), answer)
    assert verdict.ok, verdict.detail


@pytest.mark.slow
def test_one_with_another_constant_is_wrong(judge):
    verdict = judge.judge(Task("constants", TASK), ANSWER.replace("o, COLS", "o, COLS - 1"))
    assert (verdict.status, verdict.reason) == ("incorrect", "wrong_values")
