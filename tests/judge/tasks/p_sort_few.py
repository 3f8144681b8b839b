import torch
import torch.nn as nn

batch_size = 16
features = 32


class Model(nn.Module):
    """Sorts each row of a few numbers and scales it."""

    def forward(self, x):
        return torch.sort(x, dim=-1).values * 0.5 + 1.0


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return []
