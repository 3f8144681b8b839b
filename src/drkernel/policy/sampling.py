"""Drawing tokens row by row: a row's draw depends on its own logits and its own random number alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from drkernel.policy.engine import Sampling


def uniforms(seed: int, count: int) -> list[float]:
    """The random numbers of a request, one per token; counter-based, so the first k do not depend on `count`.

    >>> uniforms(7, 3)[:2] == uniforms(7, 2)
    True
    """
    return np.random.Generator(np.random.Philox(key=seed % 2**64)).random(count).tolist()


def sample(logits: Tensor, draws: list[float], settings: list[Sampling]) -> tuple[list[int], list[float]]:
    """logits [N, vocabulary], draws [N] in [0, 1) -> tokens [N] and their log-probabilities [N].

    By inversion of the cumulative distribution. The log-probabilities are those before top_k and top_p cut anything.
    """
    temperature = torch.tensor([s.temperature or 1.0 for s in settings], device=logits.device).unsqueeze(1)
    logp = (logits.float() / temperature).log_softmax(-1)
    mass = logp.exp()
    for row, setting in enumerate(settings):
        if setting.temperature == 0 or setting.top_k > 0 or setting.top_p < 1:
            mass[row] = truncate(mass[row], setting)
    cdf = mass.double().cumsum(-1)
    uniform = torch.tensor(draws, dtype=torch.float64, device=logits.device).unsqueeze(1)
    tokens = torch.searchsorted(cdf, uniform * cdf[:, -1:], right=True).clamp_(max=logits.shape[1] - 1)
    return tokens.squeeze(1).tolist(), logp.gather(1, tokens).squeeze(1).tolist()


def truncate(mass: Tensor, setting: Sampling) -> Tensor:
    """Sets to 0 what is not sampled: all but the best (temperature 0), beyond the best top_k, beyond the smallest set
    whose mass reaches top_p.

    >>> truncate(torch.tensor([0.2, 0.5, 0.3]), Sampling(top_p=0.7))
    tensor([0.0000, 0.5000, 0.3000])
    """
    values, order = mass.sort(descending=True, stable=True)
    if setting.temperature == 0:
        keep = 1
    else:
        # At rank r the mass before it has not reached top_p yet.
        keep = int(((values.cumsum(0) - values) < setting.top_p).sum())
        keep = max(1, min(keep, setting.top_k or len(values)))
    cut = torch.zeros_like(mass)
    cut[order[:keep]] = values[:keep]
    return cut
