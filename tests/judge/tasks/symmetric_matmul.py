import torch
import torch.nn as nn

N = 2048


class Model(nn.Module):
    """Product of two symmetric matrices."""

    def forward(self, A, B):
        return torch.matmul(A, B)


def get_inputs():
    A = torch.randn(N, N)
    A = (A + A.T) / 2
    B = torch.randn(N, N)
    B = (B + B.T) / 2
    return [A, B]


def get_init_inputs():
    return []
