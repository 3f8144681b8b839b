"""What a task's precision grants: nothing more to fp32, and to 16 bits rounding in their own format."""

from __future__ import annotations

import pytest
import torch

from drkernel.judge.trusted import cases
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.tasks.module import Reference
from drkernel.types import Task

LAYER = """
import torch
import torch.nn as nn

M, K, N = 96, 256, 128

class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k))
        self.to(torch.{dtype})

    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.randn(M, K, dtype=torch.{dtype})]

def get_init_inputs():
    return [K, N]
"""
GELU = "torch.nn.functional.gelu(x @ self.weight.T / 16)"


def drawn(dtype: str, precision: str = "ieee", forward: str = GELU):
    """The inputs of a case, the weight, and the expected outputs."""
    task = Task("t", LAYER.format(dtype=dtype, forward=forward), precision=precision)
    model = cases.build(Reference(task), 1)
    inputs = model.reference.inputs(2)
    return inputs[0], model.model.weight.detach(), cases.expected_outputs(task, model, inputs, False, 3, True)


def gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x / 16)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("precision", ["tf32", "low"])
def test_a_task_of_16_bits_grants_the_same_whatever_its_precision_says(dtype, precision):
    _, _, ieee = drawn(dtype)
    _, _, other = drawn(dtype, precision)
    assert ieee.tolerance() == other.tolerance()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_kernel_that_adds_up_in_fp32_and_rounds_its_output_is_right(dtype):
    x, weight, expected = drawn(dtype, "low")
    assert expected.check(OutputTensor(gelu(x.float() @ weight.float().T).to(x.dtype))) is None


def test_adding_up_in_16_bits_is_wrong():
    x, weight, expected = drawn("bfloat16", "low")
    total = torch.zeros(len(x), len(weight), dtype=x.dtype)
    for k in range(x.shape[1]):
        total += x[:, k : k + 1] * weight[:, k]
    assert expected.check(OutputTensor(gelu(total)))
