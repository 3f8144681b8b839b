# a prefix sum in blocks, each begun with the sum so far | task: cumsum | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carry = 0.0
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * length + i, mask=i < length, other=0.0)
        y = tl.cumsum(x, axis=0) + carry
        tl.store(y_ptr + row * length + i, y, mask=i < length)
        carry += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        moved = x.movedim(self.dim, -1).contiguous()
        y = torch.empty_like(moved)
        length = moved.shape[-1]
        cumsum_kernel[(moved.numel() // length,)](moved, y, length, BLOCK=1024)
        return y.movedim(-1, self.dim)
