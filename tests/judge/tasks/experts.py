from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 1024
width = 512
hidden = 1024
experts = 8


class Sizes(NamedTuple):
    width: int
    hidden: int
    experts: int
    chosen: int = 2


class Model(nn.Module):
    """A layer of experts of which each token chooses two."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        self.gate = nn.Linear(sizes.width, sizes.experts, bias=False)
        for e in range(sizes.experts):
            setattr(self, f"up_{e}", nn.Linear(sizes.width, 2 * sizes.hidden, bias=False))
            setattr(self, f"down_{e}", nn.Linear(sizes.hidden, sizes.width, bias=False))

    def forward(self, x):
        weights, chosen = torch.topk(torch.softmax(self.gate(x), dim=1), self.sizes.chosen, dim=1)
        out = torch.zeros_like(x)
        for e in range(self.sizes.experts):
            rows, place = torch.where(chosen == e)
            left, right = getattr(self, f"up_{e}")(x[rows]).chunk(2, dim=1)
            made = getattr(self, f"down_{e}")(F.silu(left) * right)
            out.index_add_(0, rows, made * weights[rows, place, None])
        return out


def get_inputs():
    return [torch.randn(tokens, width)]


def get_init_inputs():
    return [Sizes(width, hidden, experts)]
