"""Metrics that add up exactly over chunks, micro-batches and ranks.

Metric sums map a name to a float64 tensor [2]: a sum, and the count that it belongs to. Add them up over chunks or
ranks, and divide once at the end. An average of averages, in which a short micro-batch weighs as much as a long one,
cannot happen.
"""

from __future__ import annotations

import torch
from torch import Tensor

MetricSums = dict[str, Tensor]


def ratio(total: Tensor, count: Tensor) -> Tensor:
    """One entry: scalars (sum, count) -> float64 [2].

    >>> ratio(torch.tensor(3.0), torch.tensor(2)).tolist()
    [3.0, 2.0]
    """
    return torch.stack((total.double(), count.double())).detach()


def mean_of(values: Tensor, mask: Tensor) -> Tensor:
    """The entry that stands for the mean of `values` where `mask`; what lies outside may be anything, even NaN.

    >>> mean_of(torch.tensor([1.0, 3.0, float("nan")]), torch.tensor([True, True, False])).tolist()
    [4.0, 2.0]
    """
    return ratio(torch.where(mask, values, 0).sum(), mask.sum())


def add(*parts: MetricSums) -> MetricSums:
    """The metric sums of everything that the given ones have counted.

    >>> means(add({"kl": torch.tensor([2.0, 1.0])}, {"kl": torch.tensor([1.0, 5.0])}))
    {'kl': 0.5}
    """
    total: MetricSums = {}
    for part in parts:
        for name, entry in part.items():
            total[name] = total[name] + entry if name in total else entry
    return total


def means(sums: MetricSums) -> dict[str, float]:
    """Sum / count of each entry; NaN where nothing was counted.

    >>> means({"kl": torch.tensor([3.0, 2.0]), "of nothing": torch.tensor([0.0, 0.0])})
    {'kl': 1.5, 'of nothing': nan}
    """
    return {name: (entry[0] / entry[1]).item() for name, entry in sums.items()}
