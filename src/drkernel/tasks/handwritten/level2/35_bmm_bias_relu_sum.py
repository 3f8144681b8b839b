"""matmul chain: a batch of products, a bias per column, ReLU, and the sum over the rows of each item."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(cols))

    def forward(self, a, b):
        # (B, M, K) x (B, K, N) -> (B, N)
        c = torch.bmm(a, b) + self.bias
        return torch.relu(c).sum(dim=1)


B = 96
M = 640
K = 192
N = 768


def get_inputs():
    return [torch.randn(B, M, K), torch.randn(B, K, N)]


def get_init_inputs():
    return [N]


SMALL = {"B": 6, "M": 20, "K": 12, "N": 24}
