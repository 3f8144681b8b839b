# a kernel that takes ages to compile | task: relu | expect: invalid
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def long_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    for k in tl.static_range(100_000_000):
        x = tl.maximum(x, 0.0) + k * 0.0
    tl.store(y_ptr + i, x, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        long_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
