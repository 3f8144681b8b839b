"""Which of equal numbers is chosen: PyTorch leaves it open, and so a gradient may go to any of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_PLACES = {"topk": 2, "kthvalue": 2, "sort": 1, "median": 1, "max": 1, "min": 1}
"""Operators that choose along a dimension, and which argument it is."""


_ALWAYS = {
    "argmax", "argmin", "cummax", "cummin", "mode", "nanmedian", "_unique", "_unique2", "unique_dim", "multinomial",
    "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "fractional_max_pool2d", "fractional_max_pool3d",
}  # fmt: skip
"""Further operators that tell where a number lies."""


class Choices(TorchDispatchMode):
    """Notes whether an operator tells where a number lies, of which there may be several."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        self.seen = self.seen or func.overloadpacket.__name__ in _ALWAYS or chooses(func, args, kwargs)
        return func(*args, **kwargs)


def chooses(func: Any, args: tuple, kwargs: dict) -> bool:
    """Whether an operator returns values and where they lie, with equal ones in no given order."""
    if func.overloadpacket.__name__ not in _PLACES or kwargs.get("stable"):
        return False
    return len(func._schema.returns) == 2


def in_another_order(func: Any, args: tuple, kwargs: dict, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The values and indices where the numbers lie in a random order: the same values, of equal ones perhaps others."""
    x, place = args[0], _PLACES[func.overloadpacket.__name__]
    dim = args[place] if len(args) > place else kwargs.get("dim", -1)
    if not x.dim():
        return func(*args, **kwargs)
    order = torch.randperm(x.shape[dim], generator=generator, device=x.device)
    values, indices = func(x.index_select(dim, order), *args[1:], **kwargs)
    return values, order[indices]
