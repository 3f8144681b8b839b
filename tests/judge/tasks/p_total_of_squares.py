import torch
import torch.nn as nn

rows = 4096
cols = 8192


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x * x)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
