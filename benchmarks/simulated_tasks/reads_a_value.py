import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Scales by the largest value, which it reads back, and attends over as many positions as the longest row has."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, lengths):
        longest = int(lengths.max().item())
        x = x[:, :longest] / x.abs().max().item()
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mask = torch.arange(t, device=x.device) < lengths[:, None]
        scores = (q @ k.transpose(-1, -2) * (c // self.heads) ** -0.5).masked_fill(~mask[:, None, None], -1e9)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
        return F.silu(self.out(y))


batch, length, dim, heads = 16, 512, 2048, 16


def get_inputs():
    return [torch.randn(batch, length, dim), torch.randint(1, length + 1, (batch,))]


def get_init_inputs():
    return [dim, heads]
