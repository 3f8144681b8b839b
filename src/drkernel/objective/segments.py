"""Sums within segments: the one primitive under group baselines, sequence ratios and loss weights."""

from __future__ import annotations

from torch import Tensor


def segment_sum(values: Tensor, ids: Tensor) -> Tensor:
    """The sum of `values` over all rows with the same id, handed back to each of those rows.

    values [N, ...], ids int64 [N] (any integers) -> [N, ...]

    >>> import torch
    >>> segment_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([7, -1, 7])).tolist()
    [5.0, 2.0, 5.0]
    """
    names, index = ids.unique(return_inverse=True)
    return values.new_zeros(len(names), *values.shape[1:]).index_add(0, index, values)[index]
