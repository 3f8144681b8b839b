"""Perturbed models have scales of both signs, and slopes above one, where their reference takes them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from drkernel.judge.boundary.construction import with_turned_signs
from drkernel.judge.trusted.cases import plans, reference_model
from drkernel.judge.trusted.cases.reference_model import Perturbation
from drkernel.tasks.module import Reference
from drkernel.types import Task

WAYS = [Perturbation.OVERWRITE, Perturbation.CONSTRUCTION]
SOURCE = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.act, self.one = nn.BatchNorm2d(8), nn.PReLU(8), nn.PReLU()
        self.gate = nn.Parameter(torch.ones(8, 1, 1))
        self.fc = nn.Linear(8, 8)
    def forward(self, x):
        return self.one(self.act(self.norm(x))) * {gate}
def get_inputs():
    return [torch.randn(4, 8, 5, 5)]
def get_init_inputs():
    return []
"""


def built(gate="self.gate", perturbation=Perturbation.OVERWRITE, **options):
    reference = Reference(Task("t", SOURCE.format(gate=gate)))
    return reference_model.build(reference, 1, perturbation, **options).model


@pytest.mark.parametrize("perturbation", WAYS)
def test_vectors_of_one_sign_have_both(perturbation):
    model = built(perturbation=perturbation)
    for weight in (model.norm.weight, model.act.weight, model.gate):
        assert bool((weight > 0).any()) and bool((weight < 0).any())
    assert float(model.act.weight.detach().abs().max()) > 1
    assert bool((model.norm.running_var > 0).all())
    assert bool((model.one.weight > 0).all())  # a single one, which a closed gate may be


@pytest.mark.parametrize("perturbation", WAYS)
@pytest.mark.parametrize("function", ["sqrt", "log"])
def test_a_parameter_below_a_root_or_a_logarithm_stays_positive(function, perturbation):
    model = built(f"torch.{function}(self.gate)", perturbation)
    assert all(bool((weight > 0).all()) for weight in (model.norm.weight, model.gate))


@pytest.mark.parametrize("perturbation", WAYS)
def test_single_numbers_have_other_values_in_models_of_their_own(perturbation):
    turned, larger = (built(perturbation=perturbation, single=factor) for factor in plans.SINGLES.values())
    assert -0.5 < float(turned.one.weight.detach()) < 0
    assert float(larger.one.weight.detach()) >= 1
    assert bool((turned.gate > 0).all())


def test_a_submission_has_the_signs_of_a_reference_that_has_other_dimensions():
    values = torch.rand(12) + 0.5
    turned = with_turned_signs(values, 12)
    assert torch.equal(with_turned_signs(values.view(1, 12, 1, 1), 12).view(-1), turned)
    assert int((turned < 0).sum()) == 3


@pytest.mark.parametrize("values", [torch.ones(()), torch.ones(1), torch.ones(4, 4), torch.tensor([1.0, -1.0])])
def test_other_parameters_keep_their_signs(values):
    assert with_turned_signs(values, 1) is values


def test_a_model_is_left_as_it_was():
    model = built()
    assert model.training and isinstance(model, nn.Module)
    assert int(model.norm.num_batches_tracked) == 0
