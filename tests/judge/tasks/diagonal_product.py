import torch
import torch.nn as nn

N = 1024
M = 1024


class Model(nn.Module):
    def forward(self, d, b):
        return torch.matmul(d, b)


def get_inputs():
    return [torch.diag(torch.rand(N)), torch.rand(N, M)]


def get_init_inputs():
    return []
