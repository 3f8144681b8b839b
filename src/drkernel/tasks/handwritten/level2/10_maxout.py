"""matmul chain: a linear layer whose outputs compete in pieces of four; the largest survives and is scaled."""

import torch
import torch.nn as nn

BATCH = 7168
IN = 640
UNITS = 1024
PIECES = 4


class Model(nn.Module):
    def __init__(self, in_features, units, pieces):
        super().__init__()
        self.linear = nn.Linear(in_features, units * pieces)
        self.gain = nn.Parameter(torch.ones(units))
        self.pieces = pieces

    def forward(self, x):
        x = self.linear(x)
        return x.unflatten(-1, (-1, self.pieces)).amax(dim=-1) * self.gain


def get_inputs():
    return [torch.randn(BATCH, IN)]


def get_init_inputs():
    return [IN, UNITS, PIECES]
