"""Metrics that add up exactly over chunks, micro-batches and ranks.

A tally maps a name to a float64 tensor [2]: a sum and the count it belongs to. Add tallies, all-reduce them, and divide
once at the end; averages of averages, which weigh a short micro-batch like a long one, cannot happen.
"""

from __future__ import annotations

import torch
from torch import Tensor

Tally = dict[str, Tensor]


def ratio(total: Tensor, count: Tensor) -> Tensor:
    """One entry of a tally: scalars (sum, count) -> [2]."""
    return torch.stack((total.double(), count.double())).detach()


def mean_of(values: Tensor, mask: Tensor) -> Tensor:
    """The entry that stands for the mean of `values` where `mask`; what lies outside may be anything, even NaN.

    >>> mean_of(torch.tensor([1.0, 3.0, float("nan")]), torch.tensor([True, True, False])).tolist()
    [4.0, 2.0]
    """
    return ratio(torch.where(mask, values, 0).sum(), mask.sum())


def add(*tallies: Tally) -> Tally:
    """The tally of everything that the given ones have seen.

    >>> means(add({"kl": torch.tensor([2.0, 1.0])}, {"kl": torch.tensor([1.0, 5.0])}))
    {'kl': 0.5}
    """
    total: Tally = {}
    for tally in tallies:
        for name, entry in tally.items():
            total[name] = total[name] + entry if name in total else entry
    return total


def means(tally: Tally) -> dict[str, float]:
    """Sum / count of each entry; NaN where nothing was counted."""
    return {name: (entry[0] / entry[1]).item() for name, entry in tally.items()}
