import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 4096
cols = 4096


class Model(nn.Module):
    """Twice the largest of 129 neighbours of each number of a row."""

    def forward(self, x):
        return 2 * F.max_pool1d(x, 129, 1, 64)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
