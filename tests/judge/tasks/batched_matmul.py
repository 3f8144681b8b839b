import torch
import torch.nn as nn

batch = 32
M = 512
K = 1024
N = 512


class Model(nn.Module):
    """Batched matrix product in bfloat16."""

    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    a = torch.randn(batch, M, K, dtype=torch.bfloat16)
    b = torch.randn(batch, K, N, dtype=torch.bfloat16)
    return [a, b]


def get_init_inputs():
    return []
