# writes before its input | task: relu | expect: incorrect/invalid
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def spill_kernel(x_ptr, y_ptr, n, shift, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < n)
    tl.store(x_ptr + shift + tl.arange(0, 16), tl.zeros((16,), tl.float32), mask=tl.program_id(0) == 0)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        spill_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), -16, BLOCK=1024)
        return y
