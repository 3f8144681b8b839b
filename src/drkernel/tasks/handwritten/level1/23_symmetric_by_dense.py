"""matmul: a symmetric matrix times a dense one of fewer columns."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, S, B):
        return torch.matmul(S, B)


N = 3328
C = 1664


def get_inputs():
    half = torch.rand(N, N)
    S = half + half.T  # symmetric
    return [S, torch.rand(N, C)]


def get_init_inputs():
    return []


SMALL = {"N": 52, "C": 26}
