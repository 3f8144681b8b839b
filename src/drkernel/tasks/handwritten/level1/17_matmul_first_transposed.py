"""matmul: of two square-ish matrices, the first of which is stored transposed."""

import torch
import torch.nn as nn

M = 2560
K = 3072
N = 3584


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        # a comes as (K, M)
        return a.t() @ b


def get_inputs():
    return [torch.randn(K, M), torch.randn(K, N)]


def get_init_inputs():
    return []
