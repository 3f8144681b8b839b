import torch
import torch.nn as nn

batch = 4
heads = 16
length = 2048
half_dim = 32


class Model(nn.Module):
    """Rotary position embedding of queries and keys in fp16."""

    @staticmethod
    def rotate_half(x):
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat((-x2, x1), dim=-1)

    def forward(self, q, k, cos, sin):
        return q * cos + self.rotate_half(q) * sin, k * cos + self.rotate_half(k) * sin


def get_inputs():
    q, k = (torch.randn(batch, heads, length, 2 * half_dim).half() for _ in range(2))
    angles = torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(half_dim).float() / half_dim))
    angles = torch.cat((angles, angles), dim=-1)
    return [q, k, angles.cos().half(), angles.sin().half()]


def get_init_inputs():
    return []
