"""matmul: a batch of products whose sizes no tile divides."""

import torch
import torch.nn as nn

BATCH = 96
M = 413
K = 255
N = 517


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N)]


def get_init_inputs():
    return []


SMALL = {"BATCH": 5, "M": 21, "K": 19, "N": 35}
