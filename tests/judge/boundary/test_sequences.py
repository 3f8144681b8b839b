"""Recurrent layers without data execute few steps, and nobody who counts them sees a difference."""

import pytest
import torch
from torch import nn

from drkernel.judge.boundary import aten
from drkernel.judge.trusted.sizes.same_calls import calls_of
from drkernel.judge.trusted.sizes.size_cost import cost_of, planned_cost
from drkernel.judge.trusted.sizes.without_data import without_data
from drkernel.tasks.module import Reference
from drkernel.types import Task

SOURCE = """
import torch
STEPS, BATCH, WIDTH = 12, 3, 8

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.GRU(WIDTH, 5, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0][:, -1]

def get_inputs():
    return [torch.randn(BATCH, STEPS, WIDTH)]

def get_init_inputs():
    return []
"""
TASK = Task("gru", SOURCE)


@pytest.fixture(autouse=True)
def _installed():
    aten.install()


@pytest.mark.parametrize("steps", [1, 2, 3, 40])
@pytest.mark.parametrize("layer", [nn.GRU(4, 6, 2, batch_first=True), nn.RNN(4, 6, bidirectional=True)])
def test_outputs_have_the_shapes_that_they_have_with_data(layer: nn.Module, steps: int):
    shape = (3, steps, 4) if layer.batch_first else (steps, 3, 4)
    expected = layer(torch.randn(shape))
    found = layer.to("meta")(torch.randn(shape, device="meta"))
    layer.to_empty(device="cpu")
    assert [(t.shape, t.stride(), t.dtype) for t in found] == [(t.shape, t.stride(), t.dtype) for t in expected]


def test_the_products_of_all_steps_are_counted():
    assert planned_cost(TASK, {}) == cost_of(Reference(TASK))


def test_a_longer_sequence_takes_no_longer_and_has_more_operators():
    short, long = (calls_of(Reference(TASK, {"STEPS": steps})) for steps in (12, 512))
    assert short.operators == long.operators
    assert long.number > 40 * short.number


def test_a_layer_that_is_trained_executes_all_steps():
    with without_data(), torch.enable_grad():
        output, _ = nn.GRU(4, 6)(torch.randn(5, 3, 4))
        assert output.requires_grad
