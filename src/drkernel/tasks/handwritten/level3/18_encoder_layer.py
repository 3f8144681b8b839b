"""attention: an encoder layer with norms behind its residuals, as the first transformers had them."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, embed_dim, num_heads, ff_dim):
        super(Model, self).__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)
        self.norm1 = nn.LayerNorm(embed_dim)
        self.ff1 = nn.Linear(embed_dim, ff_dim)
        self.ff2 = nn.Linear(ff_dim, embed_dim)
        self.norm2 = nn.LayerNorm(embed_dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v)
        attended = attended.transpose(1, 2).reshape(B, T, C)
        x = self.norm1(x + self.out(attended))
        return self.norm2(x + self.ff2(F.relu(self.ff1(x))))


BATCH = 16
TOKENS = 320
EMBED_DIM = 512
NUM_HEADS = 8
FF_DIM = 1536


def get_inputs():
    return [torch.randn(BATCH, TOKENS, EMBED_DIM)]


def get_init_inputs():
    return [EMBED_DIM, NUM_HEADS, FF_DIM]
