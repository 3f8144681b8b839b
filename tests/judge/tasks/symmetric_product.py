import torch
import torch.nn as nn

N = 1024
M = 512


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    a = torch.rand(N, N)
    return [(a + a.t()) / 2, torch.rand(N, M)]


def get_init_inputs():
    return []
