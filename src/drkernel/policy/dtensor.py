"""Tensors that are sharded over ranks (DTensor), and those that every rank has whole, by the same calls."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def local(tensor: Tensor) -> Tensor:
    """What this rank has of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def fill(parameter: Tensor, whole: Tensor) -> None:
    """Overwrites a parameter with `whole`, which every rank has: each takes its part, and nothing is sent."""
    whole = whole.to(parameter.device)
    if isinstance(parameter, DTensor):
        whole = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
    local(parameter).copy_(local(whole))
