"""attention: RMS norm, causal heads with rotary positions, output projection, residual."""

import math

import torch
import torch.nn as nn

BATCH = 4
SEQ = 896
HEADS = 12
HEAD_DIM = 64


class Model(nn.Module):
    def __init__(self, heads, head_dim):
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.norm = nn.RMSNorm(heads * head_dim, eps=1e-6)
        self.qkv = nn.Linear(heads * head_dim, 3 * heads * head_dim, bias=False)
        self.out = nn.Linear(heads * head_dim, heads * head_dim, bias=False)

    def rotate(self, x):
        half = self.head_dim // 2
        rates = torch.exp(torch.arange(half, device=x.device) * (-math.log(10000.0) / half))
        angles = torch.arange(x.shape[2], device=x.device)[:, None] * rates
        first, second = x.chunk(2, dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)

    def forward(self, x):
        qkv = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = self.rotate(q) @ self.rotate(k).transpose(2, 3) / math.sqrt(self.head_dim)
        future = torch.ones(scores.shape[2:], dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


def get_inputs():
    return [torch.randn(BATCH, SEQ, HEADS * HEAD_DIM)]


def get_init_inputs():
    return [HEADS, HEAD_DIM]
