"""Bounds of elements are made when they decide. Verdicts are those of bounds that are made at once."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from drkernel.judge.trusted.comparison import element_bounds
from drkernel.judge.trusted.outputs import OutputTensor
from tests.judge.expectations import expected

DRAW = torch.Generator().manual_seed(0)
X = torch.randn(64, 256, generator=DRAW)
REFERENCES = {
    "scaled": lambda x: x * 3.0,
    "softmax": lambda x: torch.softmax(x, -1),
    "norm": lambda x: x - x.mean(-1, True),
}


def leaf_of(reference):
    (leaf,) = expected(reference, X)._leaves.values()
    return leaf


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("error", [0.0, 1e-8, 1e-7, 3e-7, 1e-6, 1e-5, 1e-3, torch.nan])
@pytest.mark.parametrize("number", [1, 16, 5000])
def test_late_bounds_change_no_verdict(name, error, number):
    reference = REFERENCES[name]
    late, early = leaf_of(reference), leaf_of(reference)
    assert early._atol.shape == X.shape and "_atol" not in vars(late)
    value = reference(X)
    places = torch.randperm(value.numel(), generator=torch.Generator().manual_seed(1))[:number]
    value.view(-1)[places] += error * torch.randn(number, generator=torch.Generator().manual_seed(2))
    for slack in (1.0, 16.0):
        assert late._within(value, slack) == early._within(value, slack)
        assert late.error_square == early.error_square or error != error


def test_bounds_are_made_where_errors_are_large_beside_an_element_alone():
    found = expected(REFERENCES["scaled"], X)
    (leaf,) = found._leaves.values()
    assert found.check(OutputTensor(X * 3.0)) is None and "_atol" not in vars(leaf)
    assert found.check(OutputTensor(X * 3.0 + 1e-3)).reason == "wrong_values" and "_atol" in vars(leaf)


@pytest.mark.parametrize("rows", [64, 5])
def test_bounds_of_many_elements_are_made_without_keeping_errors(monkeypatch, rows):
    right = expected(REFERENCES["softmax"], X)
    monkeypatch.setattr(element_bounds, "_CHUNK", rows * X.shape[1])
    monkeypatch.setattr(element_bounds, "_KEPT", 0)
    found = expected(REFERENCES["softmax"], X)
    for one, other in zip(right._leaves.values(), found._leaves.values(), strict=True):
        assert torch.equal(one._atol, other._atol)


def test_outputs_with_noise_are_not_kept_once_bounds_are_made(monkeypatch):
    seen = []
    made = element_bounds.element_bounds

    def noting(exact, others, *more):
        seen.extend(map(weakref.ref, others[1:]))
        return made(exact, others, *more)

    monkeypatch.setattr(element_bounds, "element_bounds", noting)
    found = expected(REFERENCES["softmax"], X)
    assert not seen, "made late"
    assert found.tolerance() and seen
    gc.collect()
    assert not any(noise() is not None for noise in seen)
