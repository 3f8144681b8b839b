import torch
import torch.nn as nn
import torch.nn.functional as F

batch = 4
heads = 16
length = 1024
head_dim = 64


class Model(nn.Module):
    """Causal attention in fp16."""

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(batch, heads, length, head_dim, dtype=torch.float16) for _ in range(3)]


def get_init_inputs():
    return []
