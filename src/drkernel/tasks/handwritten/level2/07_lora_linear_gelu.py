"""matmul chain: a linear layer with a low-rank adapter beside it, and GELU of their sum."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 7168
IN = 1024
OUT = 1280
RANK = 16


class Model(nn.Module):
    def __init__(self, in_features, out_features, rank, alpha=2.0):
        super().__init__()
        self.base = nn.Linear(in_features, out_features)
        self.down = nn.Linear(in_features, rank, bias=False)
        self.up = nn.Linear(rank, out_features, bias=False)
        self.alpha = alpha

    def forward(self, x):
        return F.gelu(self.base(x) + self.alpha * self.up(self.down(x)))


def get_inputs():
    return [torch.randn(TOKENS, IN)]


def get_init_inputs():
    return [IN, OUT, RANK]
