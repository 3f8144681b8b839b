import torch
import torch.nn as nn

M = 4096
K = 16384


class Model(nn.Module):
    """Matrix by vector: (M, K) @ (K, 1)."""

    def forward(self, A, x):
        return torch.matmul(A, x)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, 1)]


def get_init_inputs():
    return []
