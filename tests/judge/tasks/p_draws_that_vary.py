import torch
import torch.nn as nn

M = 4096
N = 4096
K = 8192


class Model(nn.Module):
    """A product of two matrices of intensities."""

    def forward(self, A, B):
        return torch.matmul(A, B)


def get_inputs():
    exposure = torch.rand(1)
    while float(exposure) < 0.95:
        exposure = torch.rand(1)
    A, B = exposure * torch.rand(M, K), torch.rand(K, N)
    return [A, B]


def get_init_inputs():
    return []
