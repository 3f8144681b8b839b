import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 8192
width = 4096


class Model(nn.Module):
    """Gated activation: the first half of the features gates the second."""

    def forward(self, x):
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value


def get_inputs():
    return [torch.randn(tokens, 2 * width).to(torch.bfloat16)]


def get_init_inputs():
    return []
