import torch
import torch.nn as nn

batch_size = 2048
features = 8192


class Model(nn.Module):
    """Ranks of the numbers in each row, from the smallest."""

    def forward(self, x):
        return torch.argsort(torch.argsort(x, dim=-1, stable=True), dim=-1)


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return []
