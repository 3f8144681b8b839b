import torch
import torch.nn as nn
import torch.nn.functional as F
from einops import rearrange


class Model(nn.Module):
    def __init__(self, batch_size, seq_length, n_heads, d_head, d_state, block_len=64):
        super(Model, self).__init__()
        assert seq_length % block_len == 0
        self.block_len = block_len
        self.inner = n_heads * d_head
        self.up, self.down = nn.Linear(1024, self.inner), nn.Linear(self.inner, 1024)
        self.to_bc = nn.Linear(1024, 2 * n_heads * d_state)
        self.to_a = nn.Linear(1024, n_heads)
        self.n_heads, self.d_state = n_heads, d_state

    def segsum(self, x):
        t = x.size(-1)
        cumulative = torch.cumsum(x, dim=-1)
        difference = cumulative[..., :, None] - cumulative[..., None, :]
        mask = torch.tril(torch.ones(t, t, device=x.device, dtype=torch.bool), diagonal=0)
        return difference.masked_fill(~mask, -torch.inf)

    def forward(self, u):
        x = rearrange(F.silu(self.up(u)), "b (c l) (h p) -> b c l h p", l=self.block_len, h=self.n_heads)
        b, c = rearrange(self.to_bc(u), "b (c l) (two h n) -> two b c l h n", two=2, l=self.block_len, h=self.n_heads)
        a = rearrange(-F.softplus(self.to_a(u)), "b (c l) h -> b h c l", l=self.block_len)
        diagonal = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, torch.exp(self.segsum(a)), x)
        return self.down(rearrange(diagonal, "b c l h p -> b (c l) (h p)"))


batch_size = 16
seq_length = 128 * 4
n_heads = 16
d_head = 128
d_state = 32
block_len = 64


def get_inputs():
    return [torch.randn(batch_size, seq_length, 1024)]


def get_init_inputs():
    return [batch_size, seq_length, n_heads, d_head, d_state, block_len]
