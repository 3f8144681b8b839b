"""In how many places an output of integers may differ: rounding decides where a number is cut, or which is largest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

_RARE, _FACTOR, _MOST = 4e-6, 4, 1e-4
"""At most the first proportion of them may differ; or so many times as many as differ with noise, up to the last."""
_FEW = 4
"""So many places may differ where each of them is a tie."""


class Flips:
    """Those of one expected output.

    Args:
        rounded: the output in the task's own precision.
        others: the same in fp64 and with noise.

    >>> import torch
    >>> flips = Flips(torch.zeros(100_000), [torch.arange(100_000) < 2])
    >>> [flips.allow(torch.arange(100_000) < wrong) for wrong in (8, 9)]
    [True, False]
    """

    def __init__(self, rounded: Any, others: Iterable[Any] = ()):
        self._most = max((_apart(rounded, other) for other in others), default=0)

    def allow(self, wrong: Tensor) -> bool:
        """Whether no more is wrong (a tensor of booleans) than rounding explains."""
        allowed = max(_RARE * wrong.numel(), min(_FACTOR * self._most, _MOST * wrong.numel()))
        return int(wrong.sum()) <= allowed


def explained_ties(value: Tensor, wrong: Tensor, more_noise: Callable[[], Iterable[Any]]) -> bool:
    """Whether few places differ, and each has what an output with noise has there: a tie that rounding decides.

    Args:
        wrong: a tensor of booleans, with as many elements.
        more_noise: further outputs with noise, which take long; asked where few places differ.
    """
    if int(wrong.sum()) > _FEW:
        return False
    value, places = value.reshape(-1), wrong.reshape(-1).nonzero()[:, 0]
    for other in more_noise():
        places = places[torch.as_tensor(other, device=value.device).reshape(-1)[places] != value[places]]
        if not len(places):
            return True
    return False


def _apart(first: Any, second: Any) -> int:
    """In how many places two leaves differ; a scalar in none, which is compared exactly."""
    comparable = isinstance(first, Tensor) and isinstance(second, Tensor) and first.shape == second.shape
    return int((first != second).sum()) if comparable else 0
