"""From logits to what training needs of them: each token's log-probability and the entropy of its distribution.

Plain torch on a CPU. On a GPU two Triton kernels: one reads the logits once, the other overwrites them with their
gradient. So a chunk's logits exist once, in the precision of the head, where plain torch makes several float32 copies.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def token_scores(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Of softmax(logits / temperature): log pi(token), with a gradient, and the entropy in nats, without; float32 [n].

    logits [n, V] of any floating type; a backward on a GPU overwrites them. tokens int64 [n].

    >>> logprob, entropy = token_scores(torch.zeros(1, 4), torch.tensor([2]), temperature=0.5)
    >>> torch.exp(-logprob).item(), torch.exp(entropy).item()
    (4.0, 4.0)
    """
    if logits.is_cuda:
        return InPlaceScores.apply(logits, tokens, temperature)
    logp = (logits.float() / temperature).log_softmax(-1)
    entropy = -(logp.detach().exp() * logp.detach()).sum(-1)
    return logp.gather(1, tokens.unsqueeze(1)).squeeze(1), entropy


class InPlaceScores(torch.autograd.Function):
    """With x = logits / temperature, lse = log sum exp(x) and g = d loss / d logprob:

    logprob           = x[token] - lse
    entropy           = lse - sum softmax(x) x
    d loss / d logits = g (onehot - softmax(x)) / temperature
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        from drkernel.policy import scoring_triton

        logprobs, entropy, lse = scoring_triton.scores(logits, tokens, temperature)
        ctx.save_for_backward(logits, tokens, lse)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        from drkernel.policy import scoring_triton

        logits, tokens, lse = ctx.saved_tensors
        scoring_triton.logits_to_gradient(logits, tokens, lse, gradient.contiguous(), ctx.temperature)
        return logits, None, None
