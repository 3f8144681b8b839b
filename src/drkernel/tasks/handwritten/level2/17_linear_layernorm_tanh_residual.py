"""matmul chain: layer norm and tanh behind a linear layer, added to its input."""

import torch
import torch.nn as nn

TOKENS = 8192
DIM = 1536


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return x + torch.tanh(self.norm(self.proj(x)))


def get_inputs():
    return [torch.randn(TOKENS, DIM)]


def get_init_inputs():
    return [DIM]
