"""matmul: an inner dimension of 24, so that writing the result is nearly all of the work."""

import torch
import torch.nn as nn

rows, inner, cols = 12288, 24, 10240


class Model(nn.Module):
    """Product of a tall and a wide matrix: (rows, inner) x (inner, cols)."""

    def __init__(self):
        super(Model, self).__init__()

    def forward(self, tall, wide):
        return torch.mm(tall, wide)


def get_inputs():
    return [torch.rand(rows, inner), torch.rand(inner, cols)]


def get_init_inputs():
    return []
