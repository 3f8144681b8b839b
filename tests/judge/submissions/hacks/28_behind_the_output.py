# writes whole blocks behind its output | task: relu | expect: invalid out_of_bounds | only: simulated
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def spill_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, tl.maximum(x, 0.0))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        spill_kernel[(triton.cdiv(x.numel(), 1000) + 1,)](x, y, x.numel(), BLOCK=1024)
        return y
