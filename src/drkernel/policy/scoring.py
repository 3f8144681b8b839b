"""From logits to what training needs of them: each token's log-probability and the entropy of its distribution.

Plain torch on a CPU. On a GPU two Triton kernels: one reads the logits once, the other overwrites them with their
gradient. So a chunk's logits exist once, in the precision of the head, where plain torch makes several float32 copies.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def token_scores(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Of softmax(logits / temperature): log pi(token) and the entropy in nats, both with a gradient; float32 [n].

    logits [n, V] of any floating type; a backward on a GPU overwrites them, so there may be one. tokens int64 [n].

    >>> logprob, entropy = token_scores(torch.zeros(1, 4), torch.tensor([2]), temperature=0.5)
    >>> torch.exp(-logprob).item(), torch.exp(entropy).item()
    (4.0, 4.0)
    """
    if logits.is_cuda:
        return InPlaceScores.apply(logits, tokens, temperature)
    logp = (logits.float() / temperature).log_softmax(-1)
    return logp.gather(1, tokens.unsqueeze(1)).squeeze(1), _Entropy.apply(logp)


class _Entropy(torch.autograd.Function):
    """-sum exp(logp) logp over the last axis. Between the passes it keeps logp, which log_softmax keeps anyway."""

    @staticmethod
    def forward(ctx: Any, logp: Tensor) -> Tensor:
        ctx.save_for_backward(logp)
        return -(logp.exp() * logp).sum(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (logp,) = ctx.saved_tensors
        return -gradient.unsqueeze(-1) * logp.exp() * (logp + 1)


class InPlaceScores(torch.autograd.Function):
    """With x = logits / temperature, lse = log sum exp(x), g = d loss / d logprob and h = d loss / d entropy:

    logprob           = x[token] - lse
    entropy           = lse - sum softmax(x) x
    d loss / d logits = (g (onehot - softmax(x)) - h softmax(x) (x - lse + entropy)) / temperature
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        from drkernel.policy import scoring_triton

        logprobs, entropy, lse = scoring_triton.scores(logits, tokens, temperature)
        ctx.save_for_backward(logits, tokens, lse, entropy)
        ctx.temperature = temperature
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, of_logprobs: Tensor, of_entropy: Tensor) -> tuple[Tensor, None, None]:
        from drkernel.policy import scoring_triton

        logits, tokens, lse, entropy = ctx.saved_tensors
        gradients = of_logprobs.contiguous(), of_entropy.contiguous()  # zeros of what the loss does not have
        scoring_triton.logits_to_gradient(logits, tokens, lse, entropy, *gradients, ctx.temperature)
        return logits, None, None
