import torch
import torch.nn as nn

M = 512
K = 1024


class Model(nn.Module):
    def forward(self, x, transposed):
        return torch.matmul(x, transposed)


def get_inputs():
    x = torch.randn(M, K)
    return [x, x.t().contiguous()]


def get_init_inputs():
    return []
