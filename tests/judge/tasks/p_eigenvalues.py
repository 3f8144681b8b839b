import torch
import torch.nn as nn

matrices = 16
side = 64


class Model(nn.Module):
    """Eigenvalues of symmetric matrices."""

    def forward(self, x):
        return torch.tanh(torch.linalg.eigvalsh(x + x.transpose(1, 2)) / 16)


def get_inputs():
    return [torch.randn(matrices, side, side)]


def get_init_inputs():
    return []
