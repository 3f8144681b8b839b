import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w8, scale):
        w = w8.view(torch.float8_e4m3fn).to(torch.bfloat16) * scale[:, None].to(torch.bfloat16)
        return x @ w.T


M = 1024
N = 2048
K = 2048


def get_inputs():
    w = (torch.randn(N, K)).to(torch.float8_e4m3fn)
    return [torch.randn(M, K).bfloat16(), w.view(torch.uint8), torch.rand(N) * 0.1 + 0.05]


def get_init_inputs():
    return []
