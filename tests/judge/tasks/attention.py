import math

import torch
import torch.nn as nn

batch = 8
heads = 8
length = 512
head_dim = 64


class Model(nn.Module):
    """Full attention in bf16, written out."""

    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    shape = (batch, heads, length, head_dim)
    return [torch.randn(shape).bfloat16(), torch.randn(shape).bfloat16(), torch.randn(shape).bfloat16()]


def get_init_inputs():
    return []
