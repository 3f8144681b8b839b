import torch
import torch.nn as nn

rows = 1536
others = 2048
width = 32


class Model(nn.Module):
    """How far all rows of one matrix lie from those of another."""

    def forward(self, x, y):
        return torch.tanh((x[:, None] - y[None]).abs().sum(-1) / x.shape[1])


def get_inputs():
    return [torch.randn(rows, width), torch.randn(others, width)]


def get_init_inputs():
    return []
