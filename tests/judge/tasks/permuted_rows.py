import torch
import torch.nn as nn

rows = 4096
cols = 512


class Model(nn.Module):
    def forward(self, x, order):
        return torch.zeros_like(x).index_add(0, order, x)


def get_inputs():
    return [torch.rand(rows, cols), torch.randperm(rows)]


def get_init_inputs():
    return []
