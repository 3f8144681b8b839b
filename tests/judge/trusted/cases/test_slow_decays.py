"""Weights under which a loop of a reference does not forget: products with matrices in 16 bits and in several layers,
and element-wise steps."""

from __future__ import annotations

import pytest
import torch

from drkernel.judge.trusted.cases import reference_model
from drkernel.judge.trusted.cases.reference_model import Perturbation
from drkernel.tasks.module import Reference
from drkernel.types import Task

SOURCE = """
import torch
from torch import nn
steps, width = {steps}, 32
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        {forward}
        return h
def get_inputs():
    return [torch.randn(8, steps, width, dtype=torch.{dtype})]
def get_init_inputs():
    return []
"""
RNN = (
    "self.a, self.b = (nn.Linear(width, width, dtype=torch.bfloat16) for _ in range(2))",
    "for u in self.a(x).unbind(1): h = torch.tanh(u + self.b(h))",
    "bfloat16",
)
GRU = "self.gru = nn.GRU(width, width, num_layers=2, batch_first=True)", "h = self.gru(x)[0][:, -1]", "float32"
EMA = (
    "self.decay = nn.Parameter(torch.randn(width))",
    "for t in range(x.shape[1]): h = {a} * h + (1 - {a}) * x[:, t]",
    "float32",
)
DECAYS = [
    "torch.sigmoid(self.decay)",
    "torch.exp(-torch.exp(self.decay))",
    "torch.exp(-nn.functional.softplus(self.decay))",
]


def error_of_the_last(steps, given, init, forward, dtype, seed):
    """By how much outputs are off that follow from the last steps alone."""
    source = SOURCE.format(steps=given, init=init, forward=forward, dtype=dtype)
    reference = Reference(Task("t", source))
    model = reference_model.build(reference, seed, Perturbation.OVERWRITE).model
    (x,) = reference.inputs(seed)
    right, wrong = (reference.forward(model, [part]).double() for part in (x, x[:, -steps:]))
    return float((wrong - right).norm() / right.norm())


def test_a_recurrence_in_16_bits_remembers():
    assert error_of_the_last(24, 256, *RNN, 1) > 0.03


@pytest.mark.slow
def test_a_recurrence_of_two_layers_remembers():
    assert error_of_the_last(128, 512, *GRU, 1) > 1e-3


@pytest.mark.parametrize("decay", DECAYS)
def test_an_element_wise_loop_remembers(decay):
    init, forward, dtype = EMA
    assert error_of_the_last(128, 256, init, forward.format(a=decay), dtype, 1) > 1e-3


def test_a_loop_that_remembers_keeps_its_decay():
    init, forward, dtype = EMA
    source = SOURCE.format(steps=64, init=init, forward=forward.format(a="(1 + 0 * self.decay)"), dtype=dtype)
    reference = Reference(Task("t", source.replace("(1 - (1 + 0 * self.decay))", "0.1")))
    model = reference_model.build(reference, 1, Perturbation.OVERWRITE).model
    assert torch.equal(model.decay.sign(), reference.model(1).decay.sign())
    assert float((model.decay.detach() / reference.model(1).decay).max()) <= 1.5
