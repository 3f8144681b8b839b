"""matmul chain: a linear layer, group norm over its features, and a swish with a learned slope."""

import torch
import torch.nn as nn

BATCH = 16384
IN = 640
GROUPS = 24
WIDTH = 80


class Model(nn.Module):
    def __init__(self, in_features, groups, width):
        super().__init__()
        self.linear = nn.Linear(in_features, groups * width)
        self.norm = nn.GroupNorm(groups, groups * width)
        self.slope = nn.Parameter(torch.ones(groups * width))

    def forward(self, x):
        x = self.norm(self.linear(x))
        return x * torch.sigmoid(self.slope * x)


def get_inputs():
    return [torch.randn(BATCH, IN)]


def get_init_inputs():
    return [IN, GROUPS, WIDTH]
