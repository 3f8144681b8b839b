import torch
import torch.nn as nn

rows = 4096
cols = 2048
edges = 255


class Model(nn.Module):
    """Which bucket each value falls into; the boundaries are sorted."""

    def forward(self, values, boundaries):
        return torch.searchsorted(boundaries, values, right=True)


def get_inputs():
    return [torch.randn(rows, cols), torch.sort(torch.randn(edges)).values]


def get_init_inputs():
    return []
