import torch
import torch.nn as nn
import torch.nn.functional as F
from einops import rearrange, reduce
from einops.layers.torch import Rearrange


class Attention(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, heads * dim_head * 3, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim)

    def forward(self, x):
        qkv = self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = map(lambda t: rearrange(t, "b n (h d) -> b h n d", h=self.heads), qkv)
        attention = (q @ k.transpose(-1, -2) * self.scale).softmax(dim=-1)
        return self.to_out(rearrange(attention @ v, "b h n d -> b n (h d)"))


class Model(nn.Module):
    def __init__(self, dim=512, depth=6, heads=8, dim_head=64):
        super().__init__()
        self.embed = nn.Sequential(
            Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=16, q=16), nn.Linear(3 * 16 * 16, dim)
        )
        self.layers = nn.ModuleList([Attention(dim, heads, dim_head) for _ in range(depth)])
        self.mlp = nn.ModuleList(
            [nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)) for _ in range(depth)]
        )
        self.head = nn.Linear(dim, 1000)

    def forward(self, img):
        x = self.embed(img)
        for attention, mlp in zip(self.layers, self.mlp):
            x = x + attention(x)
            x = x + mlp(x)
        return self.head(F.silu(reduce(x, "b n d -> b d", "mean")))


def get_inputs():
    return [torch.rand(16, 3, 224, 224)]


def get_init_inputs():
    return []
