"""Log-probability, entropy and the gradient of the logits, whichever way they are computed."""

import os
import subprocess
import sys

import pytest
import torch

from drkernel.policy.scoring import InPlaceScores, token_scores


def reference(logits, tokens, temperature, gradient, of_entropy):
    """In float64 with everything written out: log-probabilities, entropies, gradient of the logits."""
    x = logits.double().requires_grad_()
    distribution = torch.distributions.Categorical(logits=x / temperature)
    logprobs, entropy = distribution.log_prob(tokens), distribution.entropy()
    torch.autograd.backward([logprobs, entropy], [gradient.double(), of_entropy.double()])
    return logprobs.detach(), entropy.detach(), x.grad


def check(scores, dtype, device="cpu", bonus=0.0):
    """A vocabulary of several blocks and a rest; a distribution with a peak, a nearly flat one, tokens at the edges."""
    torch.manual_seed(0)
    logits = (3 * torch.randn(6, 9_001)).to(dtype)
    logits[1, 4095] = 40
    logits[2] *= 0.01
    tokens, gradient = torch.tensor([0, 4095, 9_000, 4096, 7, 8_191]), torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0, -1.0])
    of_entropy = bonus * torch.tensor([1.0, 2.0, -1.0, 3.0, 0.0, 0.5])
    logprobs, entropies, expected = reference(logits, tokens, 0.7, gradient, of_entropy)
    leaf = logits.to(device).requires_grad_()
    found, entropy = scores(leaf * 1, tokens.to(device), 0.7)
    gradients = [gradient.to(device), of_entropy.to(device)]
    torch.autograd.backward([found, entropy][: 2 if bonus else 1], gradients[: 2 if bonus else 1])
    torch.testing.assert_close(found.detach().cpu().double(), logprobs, rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(entropy.cpu().double(), entropies, rtol=1e-5, atol=2e-5)
    # Where a token is nearly certain, 1 - p of it is what float32 leaves of x - lse, and x is 57 here.
    precision = {"rtol": 1e-5 if dtype == torch.float32 else 2**-7, "atol": 2e-5}
    torch.testing.assert_close(leaf.grad.cpu().double(), expected, **precision)


@pytest.mark.parametrize("bonus", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_torch_is_the_formula(dtype, bonus):
    check(token_scores, dtype, bonus=bonus)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("bonus", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_are_the_formula_on_a_gpu(dtype, bonus):
    check(InPlaceScores.apply, dtype, "cuda", bonus)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run on the GPU")
def test_the_kernels_are_the_formula_in_tritons_interpreter():
    # A process of its own: Triton reads the variable when it is imported.
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


if __name__ == "__main__":
    for each in (torch.float32, torch.bfloat16):
        for with_bonus in (0.0, 1.0):
            check(InPlaceScores.apply, each, bonus=with_bonus)
