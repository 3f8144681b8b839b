"""The kernels of `scoring.py`: one program per token walks along the vocabulary in blocks, in float32."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def scores(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """logits [n, V], tokens int64 [n] -> log-probabilities, entropies and lse = log sum exp(x), float32 [n]."""
    assert logits.is_contiguous()
    logprobs, entropies, lse = (torch.empty(len(logits), device=logits.device) for _ in range(3))
    size = logits.shape[1]
    _scores[(len(logits),)](logits, tokens, logprobs, entropies, lse, 1 / temperature, size, BLOCK, num_warps=8)
    return logprobs, entropies, lse


def logits_to_gradient(
    logits: Tensor,
    tokens: Tensor,
    lse: Tensor,
    entropy: Tensor,
    of_logprobs: Tensor,
    of_entropy: Tensor,
    temperature: float,
) -> None:
    """Overwrite logits [n, V] with the gradient that those of the log-probabilities and of the entropies, float32 [n],
    give them."""
    size, rows = logits.shape[1], (lse, entropy, of_logprobs, of_entropy)
    _gradient[(len(logits),)](logits, tokens, *rows, 1 / temperature, size, BLOCK, num_warps=8)


@triton.jit
def _scores(logits, tokens, logprobs, entropies, lses, inverse_temperature, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # n * V passes 2**31
    start = logits + row * size
    top = -float("inf")  # of x so far; the sums are over exp(x - top) and exp(x - top) * x
    total = 0.0
    weighted = 0.0
    for first in range(0, size, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(start + column, mask=column < size, other=-float("inf")).to(tl.float32) * inverse_temperature
        higher = tl.maximum(top, tl.max(x, 0))
        share = tl.exp(x - higher)
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(share, 0)
        weighted = weighted * shrink + tl.sum(tl.where(share > 0, share * x, 0.0), 0)
        top = higher
    lse = top + tl.log(total)
    taken = tl.load(start + tl.load(tokens + row)).to(tl.float32) * inverse_temperature
    tl.store(logprobs + row, taken - lse)
    tl.store(entropies + row, lse - weighted / total)
    tl.store(lses + row, lse)


@triton.jit
def _gradient(
    logits, tokens, lses, entropies, of_logprobs, of_entropies, inverse_temperature, size, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * size
    token = tl.load(tokens + row)
    lse = tl.load(lses + row)
    entropy = tl.load(entropies + row)
    gradient = tl.load(of_logprobs + row) * inverse_temperature
    of_entropy = tl.load(of_entropies + row) * inverse_temperature
    for first in range(0, size, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(start + column, mask=column < size, other=0.0).to(tl.float32) * inverse_temperature
        share = tl.exp(x - lse)
        value = gradient * (tl.where(column == token, 1.0, 0.0) - share)
        value -= of_entropy * tl.where(share > 0, share * (x - lse + entropy), 0.0)
        tl.store(start + column, value.to(logits.dtype.element_ty), mask=column < size)
