import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 4096
hidden = 1024
inner = 4096


class Model(nn.Module):
    """The first half of a transformer's feed-forward block: x W^T + b, then GELU by tanh."""

    def __init__(self, hidden, inner):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(inner, hidden) * hidden**-0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(inner).to(torch.bfloat16))

    def forward(self, x):
        return F.gelu(F.linear(x, self.weight) + self.bias, approximate="tanh")


def get_inputs():
    return [torch.randn(tokens, hidden).to(torch.bfloat16)]


def get_init_inputs():
    return [hidden, inner]
