import torch
import torch.nn as nn

rows = 8388608
columns = 8
limit = 1.96


class Model(nn.Module):
    """How many more numbers of each column lie inside of the limit than outside."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, x):
        return 2 * torch.sum(torch.abs(x) < self.limit, dim=0) - x.shape[0]


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [limit]
