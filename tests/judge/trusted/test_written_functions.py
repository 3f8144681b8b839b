"""P7: a function may be written as people write it, where it is small, large or saturated; never in 16 bits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import sigmoid

from drkernel.judge.trusted.rounding.rounding import EPS, Noise
from tests.judge.expectations import expected, right

NEGATIVE, SATURATED, NEAR_FIVE, NEAR_THREE = slice(8), slice(8, 16), slice(16, 20), slice(20, 24)
"""Rows of the inputs below; the others are of sizes from 0.004 to one."""
TARGET = 0.9


def tanh(x):
    return 1 - 2 / (1 + (2 * x).exp())


def log_one_more(x):
    return (1 + x.exp()).log()


WRITTEN = {
    "elu": (F.elu, lambda x: torch.where(x > 0, x, x.exp() - 1)),
    "selu": (
        F.selu,
        lambda x: 1.0507009873554805 * torch.where(x > 0, x, 1.6732632423543772 * (x.exp() - 1)),
    ),
    "tanh": (torch.tanh, tanh),
    "softplus": (F.softplus, log_one_more),
    "logsigmoid": (F.logsigmoid, lambda x: sigmoid(x).log()),
    "mish": (F.mish, lambda x: x * tanh(log_one_more(x))),
    "gelu": (F.gelu, lambda x: 0.5 * x * (1 + torch.erf(x * 0.70710678))),
    "gelu by tanh": (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: 0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
    ),
    "hardswish": (F.hardswish, lambda x: x * torch.clamp(x + 3, 0, 6) / 6),
    "hardswish by a sixth": (F.hardswish, lambda x: x * torch.clamp(x * 0.16666667 + 0.5, 0, 1)),
    "hardsigmoid": (F.hardsigmoid, lambda x: torch.clamp(x / 6 + 0.5, 0, 1)),
    "sinh": (torch.sinh, lambda x: (x.exp() - (-x).exp()) * 0.5),
    "erfc": (torch.erfc, lambda x: 1 - torch.erf(x)),
    "logit": (lambda x: torch.logit(sigmoid(x)), lambda x: (sigmoid(x) / (1 - sigmoid(x))).log()),
    "logaddexp": (lambda x: torch.logaddexp(x, -x.exp()), lambda x: (x.exp() + (-x.exp()).exp()).log()),
    "soft margins": (
        lambda x: F.soft_margin_loss(x, x.sign(), reduction="none"),
        lambda x: log_one_more(-x * x.sign()),
    ),
    "cross-entropy": (
        lambda x: F.binary_cross_entropy(sigmoid(x), TARGET * sigmoid(2 * x), reduction="none"),
        lambda x: (
            -(TARGET * sigmoid(2 * x) * sigmoid(x).log() + (1 - TARGET * sigmoid(2 * x)) * (1 - sigmoid(x)).log())
        ),
    ),
    "cross-entropy of logits": (
        lambda x: F.binary_cross_entropy_with_logits(x, sigmoid(2 * x), reduction="none") * x,
        lambda x: (x.clamp(min=0) - x * sigmoid(2 * x) + log_one_more(-x.abs())) * x,
    ),
}
"""A function of torch, and how people write it in a kernel."""


@pytest.mark.parametrize("shape", [(64, 1024), (2**16,)], ids=["rows", "elements"])
@pytest.mark.parametrize("name", WRITTEN)
def test_functions_may_be_written_as_people_write_them(name, shape):
    function, written = WRITTEN[name]
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(64, 1024, generator=draw) * torch.logspace(-6, 0, 64)[:, None]
    for rows, offset in ((NEGATIVE, -12.0), (SATURATED, 12.0), (NEAR_FIVE, -4.5), (NEAR_THREE, -2.99)):
        x[rows] += offset
    x = x.reshape(shape)
    allowed = expected(function, x, runs=1)
    assert right(allowed, written(x))
    assert not right(allowed, written(x.bfloat16().float()))


@pytest.mark.parametrize("function", [sigmoid, torch.tanh, torch.erf, lambda x: torch.softmax(x, 0)])
def test_noise_carries_no_function_beyond_one(function):
    """Else what follows, the root or the logarithm of the rest, has no value."""
    x = torch.tensor([60.0, 0.5, -60.0], dtype=torch.float64)
    errors = []
    for seed in range(20):
        with Noise("ieee", seed):
            noisy = function(x)
        assert noisy.abs().max() <= 1.0
        errors.append((noisy - function(x))[0].abs())
    assert torch.stack(errors).median() >= 0.2 * EPS
