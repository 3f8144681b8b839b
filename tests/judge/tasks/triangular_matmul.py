import torch
import torch.nn as nn

N = 2048


class Model(nn.Module):
    """Product of two lower triangular matrices, which is lower triangular."""

    def forward(self, A, B):
        return torch.tril(torch.matmul(A, B))


def get_inputs():
    A = torch.tril(torch.rand(N, N))
    B = torch.tril(torch.rand(N, N))
    return [A, B]


def get_init_inputs():
    return []
