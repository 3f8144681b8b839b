"""matmul: a large matrix times a single column."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, A, v):
        return A @ v


M = 20480
K = 12288


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, 1)]


def get_init_inputs():
    return []
