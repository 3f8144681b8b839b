# whole blocks without a mask, and a tail kernel for the rest | task: relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def main_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.maximum(tl.load(x_ptr + i), 0.0))


@triton.jit
def tail_kernel(x_ptr, y_ptr, start, n, BLOCK: tl.constexpr):
    i = start + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.maximum(tl.load(x_ptr + i, mask=i < n), 0.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y, n = torch.empty_like(x), x.numel()
        blocks = n // 64
        if blocks:
            main_kernel[(blocks,)](x, y, BLOCK=64)
        tail_kernel[(1,)](x, y, blocks * 64, n, BLOCK=64)
        return y
