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

    By inversion of the cumulative distribution. The log-probabilities are those of what is left of it (`Sampling`).
    """
    temperature = torch.tensor([s.temperature or 1.0 for s in settings], device=logits.device).unsqueeze(1)
    logp = (logits.float() / temperature).log_softmax(-1)
    mass, left = logp.exp(), torch.zeros(len(settings), 1, device=logits.device)
    for row, setting in enumerate(settings):
        if setting.temperature == 0 or setting.truncates:
            mass[row] = truncate(mass[row], setting)
        if setting.truncates:
            left[row] = mass[row].sum().log()
    cdf = mass.double().cumsum(-1)
    uniform = torch.tensor(draws, dtype=torch.float64, device=logits.device).unsqueeze(1)
    tokens = torch.searchsorted(cdf, uniform * cdf[:, -1:], right=True).clamp_(max=logits.shape[1] - 1)
    return tokens.squeeze(1).tolist(), (logp.gather(1, tokens) - left).squeeze(1).tolist()


def truncate(mass: Tensor, setting: Sampling) -> Tensor:
    """Sets to 0 what is not sampled: all but the best (temperature 0), below min_p of the best, beyond the best top_k,
    beyond the smallest set whose mass reaches top_p of what those leave.

    >>> truncate(torch.tensor([0.2, 0.5, 0.3]), Sampling(top_p=0.7))
    tensor([0.0000, 0.5000, 0.3000])
    >>> truncate(torch.tensor([0.2, 0.5, 0.3]), Sampling(top_p=0.6, top_k=2)), "0.5 of 0.8 is more"
    (tensor([0.0000, 0.5000, 0.0000]), '0.5 of 0.8 is more')
    """
    values, order = mass.sort(descending=True, stable=True)
    if setting.temperature == 0:
        keep = 1
    else:
        keep = int((values >= setting.min_p * values[0]).sum())
        keep = min(keep, setting.top_k or keep)
        if setting.top_p < 1:
            whole = values[:keep].sum() if keep < len(values) else 1.0
            # At rank r the mass before it has not reached top_p yet.
            keep = min(keep, int(((values.cumsum(0) - values) < setting.top_p * whole).sum()))
        keep = max(1, keep)
    cut = torch.zeros_like(mass)
    cut[order[:keep]] = values[:keep]
    return cut
