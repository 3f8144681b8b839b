"""Outliers whose exponential overflows, where a reference takes them."""

from __future__ import annotations

import pytest
import torch

from drkernel.judge.trusted.cases import cases, reference_model, regimes, structure
from drkernel.judge.trusted.cases.plans import Plan
from drkernel.tasks.module import Reference
from drkernel.types import Task

SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
"""


def drawn(forward):
    task = Task("t", SOURCE.format(forward=forward))
    reference = Reference(task)
    model = reference_model.build(reference, 1)
    case = cases.draw(task, Plan("sparse", regime="sparse"), model, 5, structure.observe(reference, 1))
    return case.inputs[0]


def test_a_softmax_has_rows_that_need_their_maximum_and_others():
    x = drawn("torch.softmax(x, 1)")
    first = x[:, :48].amax(1, keepdim=True)
    assert not torch.exp(x - first).isfinite().all()
    assert bool((x.amax(1) > 88).any()) and bool((x.abs().amax(1) < 88).any())


def test_a_reference_that_overflows_keeps_the_values_that_it_had():
    x = drawn("torch.exp(x)")
    assert float(x.max()) < 88
    assert float(x.abs().max()) > 8


@pytest.mark.parametrize("variant", range(regimes.REGIMES["mixed"]))
def test_mixed_values_are_finite(variant):
    x = torch.randn(64, 96)
    source = structure.Source(structure.Use.VALUES, -3.0, 3.0, True, "randn")
    regimes.change("mixed", variant, 7)(x, source, 0)
    assert bool(x.isfinite().all())
