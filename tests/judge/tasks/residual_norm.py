import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 8192
hidden = 2048


class Model(nn.Module):
    """Residual connection and layer norm in bf16; both the norm and the sum are returned."""

    def __init__(self, hidden):
        super().__init__()
        self.hidden = hidden
        self.weight = nn.Parameter(torch.rand(hidden).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.rand(hidden).to(torch.bfloat16))

    def forward(self, x, residual):
        total = x + residual
        return F.layer_norm(total, (self.hidden,), self.weight, self.bias), total


def get_inputs():
    return [torch.randn(tokens, hidden).to(torch.bfloat16), torch.randn(tokens, hidden).to(torch.bfloat16)]


def get_init_inputs():
    return [hidden]
