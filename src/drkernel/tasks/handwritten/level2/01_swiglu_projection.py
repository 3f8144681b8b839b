"""matmul chain: two products of one input, the first of which gates the second."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 3584
DIM = 1024
HIDDEN = 2816


class Model(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return F.silu(self.gate(x)) * self.up(x)


def get_inputs():
    return [torch.randn(TOKENS, DIM)]


def get_init_inputs():
    return [DIM, HIDDEN]
