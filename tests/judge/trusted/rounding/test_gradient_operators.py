"""Gradients of layers in parts: the numbers of ATen's operators, and the errors of their products and sums."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from drkernel.judge.trusted.rounding.formats import LOWERINGS, Lowered
from drkernel.judge.trusted.rounding.gradient_operators import convolution_backward
from drkernel.judge.trusted.rounding.rounding import Noise
from tests.judge.expectations import expected, right


def draw(seed: int) -> tuple[torch.Tensor, torch.Tensor, tuple] | None:
    """Input, weight and settings of a convolution; None where its output would be empty."""
    rng = random.Random(seed)
    groups, transposed, dims = rng.choice([1, 2, 4]), rng.random() < 0.5, rng.choice([1, 2, 3])
    ins, outs = groups * rng.choice([1, 3]), groups * rng.choice([1, 2])
    several = lambda *values: [rng.choice(values) for _ in range(dims)]
    window, stride, padding, dilation = several(1, 2, 3), several(1, 2, 3), several(0, 1, 2), several(1, 2)
    more = [rng.randrange(max(pair)) * transposed for pair in zip(stride, dilation, strict=True)]
    x = torch.randn(2, ins, *several(7, 8, 9), dtype=torch.float64)
    shape = (ins, outs // groups) if transposed else (outs, ins // groups)
    return x, torch.randn(*shape, *window, dtype=torch.float64), (stride, padding, dilation, transposed, more, groups)


@pytest.mark.parametrize("seed", range(60))
def test_gradients_of_convolutions_are_atens(seed):
    x, weight, settings = draw(seed)
    grad = torch.randn_like(torch.convolution(x, weight, None, *settings))
    outs = [grad.shape[1]]
    want = torch.ops.aten.convolution_backward(grad, x, weight, outs, *settings, [True, True, True])
    for one, other in zip(convolution_backward(grad, x, weight, outs, *settings, [True] * 3), want, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other)
    assert convolution_backward(grad, x, weight, outs, *settings, [False, False, True])[:2] == (None, None)


def gradients(run, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    output = run(*leaves)
    given = torch.randn(output.shape, generator=torch.Generator().manual_seed(7)).to(output.dtype)
    return torch.autograd.grad(output, leaves, given)


LAYERS = {
    "convolution": (F.conv2d, (8, 4, 24, 24), (6, 4, 3, 3)),
    "layer norm": (lambda x, weight: F.layer_norm(x, (64,), weight), (4096, 64), (64,)),
    "batch norm": (lambda x, weight: F.batch_norm(x, None, None, weight, training=True), (64, 8, 9), (8,)),
    "embedding": (lambda x, weight: F.embedding(torch.arange(4096) % 8, weight) * x, (4096, 16), (8, 16)),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_noise_is_as_large_as_another_order_of_summation(layer):
    """Of a weight's gradient, a sum over all samples: fp32 is about as far from fp64 as noise is."""
    run, *shapes = LAYERS[layer]
    leaves = [torch.randn(shape) for shape in shapes]
    double = [leaf.double() for leaf in leaves]
    exact = gradients(run, *double)
    noisy = []
    for seed in range(5):
        with Noise("ieee", seed):
            noisy.append(gradients(run, *double))
    plain = gradients(run, *leaves)
    for place, value in enumerate(exact):
        spread = torch.stack([(each[place] - value).abs() for each in noisy]).amax(0)
        error = (plain[place].double() - value).abs()
        usual = spread.square().mean().sqrt()
        assert 0 < float(usual) < 1e-4 * float(value.abs().max())
        assert bool((error <= 6 * torch.maximum(spread, usual)).all())


def test_products_of_gradients_are_lowered():
    """A kernel that multiplies in TF32 is told from one in fp32 by the weight's gradient, too."""
    torch.manual_seed(1)
    conv, x = nn.Conv2d(4, 6, 3, dtype=torch.float64), torch.randn(8, 4, 24, 24, dtype=torch.float64)
    run = lambda x, weight: F.conv2d(x, weight)
    exact = gradients(run, x, conv.weight)
    with Lowered(LOWERINGS["ieee"]["TF32"]):
        lowered = gradients(run, x, conv.weight)
    for one, other in zip(exact, lowered, strict=True):
        assert 1e-5 < float((one - other).norm() / one.norm()) < 1e-3


def of_attention(scores, grad, value, flash):
    """The gradient of scores whose softmax weighs values; the row 0 has one score that is nearly all."""
    weights = torch.softmax(scores, -1)
    of_weights = grad @ value.mT
    if flash:
        total = (weights @ value * grad).sum(-1, keepdim=True)
        return weights * (of_weights - total)
    with torch.enable_grad():
        scores = scores.detach().requires_grad_()
        torch.softmax(scores, -1).backward(of_weights)
    return scores.grad


@pytest.mark.parametrize("seed", range(4))
def test_flash_attentions_sum_is_right(seed):
    draw = torch.Generator().manual_seed(seed)
    scores, grad, value = (torch.randn(4, 32, n, generator=draw) for n in (32, 16, 16))
    scores[:, 0] -= 1e4 * (torch.arange(32) > 0)
    found = expected(lambda *x: of_attention(*x, flash=False), scores, grad, value)
    assert right(found, of_attention(scores, grad, value, flash=True))
    assert not right(found, of_attention(scores, grad, value, flash=True) + 1e-4)


def test_gradients_of_a_grid_have_noise_of_their_own():
    x, grid = torch.randn(2, 3, 8, 8), torch.rand(2, 5, 5, 2) * 2 - 1

    def gradients(x, grid):
        with torch.enable_grad():
            x, grid = x.detach().requires_grad_(), grid.detach().requires_grad_()
            out = F.grid_sample(x, grid, align_corners=False)
            return torch.autograd.grad(out, (x, grid), torch.ones_like(out))

    with Noise("ieee", 0):
        noisy = gradients(x.double(), grid.double())
    for one, exact in zip(noisy, gradients(x.double(), grid.double()), strict=True):
        assert 0 < (one - exact).abs().max() < 1e-4


@pytest.mark.parametrize("choose", [lambda x: x.topk(3).values, lambda x: x.kthvalue(2, 1).values])
def test_equal_numbers_are_chosen_in_any_order(choose):
    x = torch.randint(0, 2, (16, 64), generator=torch.Generator().manual_seed(6)).double()

    def gradient(x):
        with torch.enable_grad():
            out = choose(x := x.detach().requires_grad_())
            return torch.autograd.grad(out, x, torch.ones_like(out))[0]

    found = []
    for seed in range(2):
        with Noise("ieee", seed):
            found.append(gradient(x))
    assert not torch.equal(*found)
    for one in found:
        assert torch.equal(one.bool().sum(1), gradient(x).bool().sum(1))
