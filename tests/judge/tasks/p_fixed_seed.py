import torch
import torch.nn as nn

size = 1024


class Model(nn.Module):
    """A product of two matrices, whose task seeds the generator itself."""

    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    torch.manual_seed(42)
    return [torch.randn(size, size), torch.randn(size, size)]


def get_init_inputs():
    return []
