"""The least that a task must move and multiply is what one counts by hand."""

from __future__ import annotations

import pytest

from drkernel.judge.trusted.least_work import LeastWork, least_work
from drkernel.tasks.module import Reference
from drkernel.types import Task

TASK = """
import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, {names}):
        return {result}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""


def found(inputs: str, result: str, init: str = "pass", train: bool = False) -> LeastWork | None:
    names = ", ".join("xyz"[: inputs.count("torch.")])
    source = TASK.format(init=init, names=names, inputs=inputs, result=result)
    return least_work(Reference(Task("t", source)), train)


@pytest.mark.parametrize(
    ("inputs", "result", "init", "read", "written"),
    [
        ("torch.rand(64, 32)", "torch.relu(x) * 2 + 1", "pass", 64 * 32, 64 * 32),
        ("torch.rand(64, 32)", "x.sum()", "pass", 64 * 32, 1),
        ("torch.rand(64, 32)", "x + x.mean(1, keepdim=True)", "pass", 64 * 32, 64 * 32),
        ("torch.rand(64, 32)", "torch.tanh(x[:, :16]) * x[:, 16:]", "pass", 64 * 32, 64 * 16),
        ("torch.rand(64, 32)", "x[:8] * 2", "pass", 8 * 32, 8 * 32),
        ("torch.rand(64, 32)", "x.t()", "pass", 0, 0),
        (
            "torch.rand(64, 32), torch.rand(4, 32)",
            "(x.index_copy_(0, torch.arange(4), y), y * 2)[1]",
            "pass",
            4 * 32,
            4 * 32,
        ),
        ("torch.rand(64, 1).expand(64, 32)", "x + 1", "pass", 64, 64 * 32),
        ("torch.rand(64, 32), torch.rand(64, 32)", "x * 2", "pass", 64 * 32, 64 * 32),
        ("torch.rand(64, 32)", "self.a(x)", "self.a = nn.Linear(32, 8)", 64 * 32 + 32 * 8 + 8, 64 * 8),
        ("torch.rand(64, 32)", "x * 2", "self.a = nn.Linear(32, 8)", 64 * 32, 64 * 32),
        ("torch.rand(2, 8, 16, 16)", "F.avg_pool2d(x, 1, 4)", "pass", 2 * 8 * 4 * 4, 2 * 8 * 4 * 4),
        ("torch.rand(2, 8, 16, 16)", "self.a(x)", "self.a = nn.Conv2d(8, 4, 1, 2, bias=False)", 16 * 64 + 32, 8 * 64),
    ],
)
def test_bytes_are_those_of_what_is_read_and_written_once(inputs, result, init, read, written):
    assert found(inputs, result, init).bytes == 4 * (read + written)


@pytest.mark.parametrize(
    ("result", "unread"),
    [
        ("x * 2", {1}),
        ("x * y.shape[0]", {1}),
        ("x + y", set()),
        ("x * y[:1, :1]", set()),
        ("x.t()", {0, 1}),
        ("torch.cat([x, y])", set()),
        ("torch.empty_like(x).copy_(y)", {0}),
        ("F.embedding((x * 3).long(), y)", set()),
    ],
)
def test_inputs_that_nothing_reads_are_known(result, unread):
    assert found("torch.rand(64, 32), torch.rand(64, 32)", result).unread == unread


def test_what_is_gathered_is_not_known_without_data():
    work = found("torch.randint(0, 1000, (64,))", "self.e(x)", "self.e = nn.Embedding(1000, 32)")
    assert work.bytes == 8 * 64 + 4 * 64 * 32


@pytest.mark.parametrize(
    ("inputs", "result", "flops"),
    [
        ("torch.rand(64, 32), torch.rand(32, 16)", "torch.relu(x @ y)", {"fp32": 2 * 64 * 32 * 16}),
        ("torch.rand(64, 32).half(), torch.rand(32, 16).half()", "x @ y", {"half": 2 * 64 * 32 * 16}),
        ("torch.rand(2, 3, 8, 8), torch.rand(4, 3, 3, 3)", "F.conv2d(x, y)", {"fp32": 2 * 2 * 4 * 36 * 27}),
        ("torch.rand(64, 32)", "torch.exp(x)", {}),
    ],
)
def test_operations_are_those_of_products(inputs, result, flops):
    assert found(inputs, result).flops == flops


def test_causal_attention_needs_half_of_its_products():
    tensor = "torch.rand(2, 4, 128, 64)"
    whole, causal = (
        found(", ".join([tensor] * 3), f"F.scaled_dot_product_attention(x, y, z, is_causal={word})")
        for word in (False, True)
    )
    assert whole.operations == 2 * 2 * (2 * 4 * 128 * 128 * 64)
    assert causal.operations / whole.operations == pytest.approx(129 / 256)


def test_modules_that_convert_themselves_are_known():
    work = found("torch.rand(64, 32).half()", "self.a(x)", "self.a = nn.Linear(32, 8).half()")
    assert work.bytes == 2 * (64 * 32 + 32 * 8 + 8 + 64 * 8) and work.flops == {"half": 2 * 64 * 32 * 8}


def test_nothing_is_said_where_the_reference_needs_large_data():
    assert found("torch.rand(2**14, 2**13)", "x * float(x.sum().item())") is None


def test_small_data_are_read():
    assert found("torch.rand(64, 32)", "x * float(x.sum().item())").bytes == 2 * 4 * 64 * 32


def test_gibibytes_take_no_memory():
    assert found("torch.rand(2**20, 2**12)", "x * 2").bytes == 2**35
