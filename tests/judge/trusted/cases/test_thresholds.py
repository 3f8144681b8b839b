"""Thresholds of a reference are found that usual values do not get past, and values that do."""

import pytest

from drkernel.judge.trusted.cases import structure, thresholds
from drkernel.tasks.module import Reference
from drkernel.types import Task

SOURCE = (
    "import torch\nimport torch.nn as nn\n\n\n"
    "class Model(nn.Module):\n    def forward(self, x):\n        return {}\n\n\n"
    "def get_inputs():\n    return [{}]\n\n\ndef get_init_inputs():\n    return []\n"
)
NORMAL = "torch.randn(64, 64)"


def found(result: str, inputs: str = NORMAL) -> tuple[str, ...]:
    reference = Reference(Task("t", SOURCE.format(result, inputs)))
    return thresholds.unreached(reference, structure.observe(reference, 0), False, 1)


@pytest.mark.parametrize(
    ("result", "regimes"),
    [
        ("x * torch.clamp(1.0 / (x.norm() + 1e-6), max=1.0)", ("scaled-8",)),
        ("torch.where(x > 200.0, 2 * x, x)", ()),  # a large value has that
        ("torch.where(x > 2000.0, 2 * x, x)", ("scaled+12",)),
        ("torch.clamp(x, -2000.0, 2000.0)", ("scaled+12",)),
        ("nn.functional.huber_loss(x, 0 * x, reduction='none', delta=1000.0)", ("scaled+8",)),
        ("x / (x.square().mean() + 1e-5).sqrt()", ("scaled-8",)),
        ("nn.functional.layer_norm(x, (64, 64))", ("scaled-8",)),
        ("nn.functional.layer_norm(x, (64,))", ()),  # constant rows have no variance
        ("x / torch.maximum(x.abs().amax(1, keepdim=True), torch.tensor(1e-2))", ()),  # constant rows may be small
    ],
)
def test_values_get_past_a_threshold(result, regimes):
    names = found(result)
    assert bool(names) == bool(regimes) and set(regimes) <= set(names)


@pytest.mark.parametrize("result", ["torch.relu(x)", "x.clamp(-1, 1)", "torch.where(x > 0, x, 0.1 * x)", "x + 1"])
def test_usual_values_get_past_usual_thresholds(result):
    assert not found(result)


def test_a_threshold_that_nothing_gets_past_asks_for_nothing():
    assert not found("x.square().sum(1).clamp(min=-1.0)")


def test_numbers_of_a_given_range_stay_in_it():
    assert not found("torch.where(x > 1.0, 2 * x, x)", "torch.softmax(torch.rand(64, 64), 1)")
