import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def add_norm(x_ptr, y_ptr, gain_ptr, bias_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    i = tl.arange(0, BLOCK)
    inside = i < cols
    s = tl.load(x_ptr + row + i, mask=inside, other=0.0) + tl.load(y_ptr + row + i, mask=inside, other=0.0)
    mean = tl.sum(s, axis=0) / cols
    s = tl.where(inside, s - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(s * s, axis=0) / cols + eps)
    gain = tl.load(gain_ptr + i, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + i, mask=inside, other=0.0)
    tl.store(y_ptr + row + i, s * scale * gain + bias, mask=inside)


def add_and_norm(x, y, norm):
    """norm(x + y), in the memory of y."""
    cols = y.shape[-1]
    add_norm[(y.numel() // cols,)](
        x, y, norm.weight, norm.bias, cols, norm.eps, BLOCK=triton.next_power_of_2(cols), num_warps=4
    )
    return y


class ModelNew(nn.Module):
    def __init__(self, embed_dim, num_heads, ff_dim):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)
        self.norm1 = nn.LayerNorm(embed_dim)
        self.ff1 = nn.Linear(embed_dim, ff_dim)
        self.ff2 = nn.Linear(ff_dim, embed_dim)
        self.norm2 = nn.LayerNorm(embed_dim)

    def forward(self, x):
        x = x.contiguous()
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v)
        attended = attended.transpose(1, 2).reshape(B, T, C)
        x = add_and_norm(x, self.out(attended), self.norm1)
        return add_and_norm(x, self.ff2(torch.relu_(self.ff1(x))), self.norm2)
