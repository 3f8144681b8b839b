import torch
import torch.nn as nn

points = 1536
centres = 1536
width = 1024


class Model(nn.Module):
    """How many pairs of points and centres are similar."""

    def forward(self, x, y):
        return (x @ y.t() > 24.0).sum()


def get_inputs():
    return [torch.randn(points, width), torch.randn(centres, width)]


def get_init_inputs():
    return []
