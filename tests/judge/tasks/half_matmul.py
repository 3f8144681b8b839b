import torch
import torch.nn as nn

M = 16
N = 16
K = 2**12


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(torch.matmul(a.abs(), b.abs()))


def get_inputs():
    return [torch.rand(M, K).to(torch.bfloat16), torch.rand(K, N).to(torch.bfloat16)]


def get_init_inputs():
    return []
