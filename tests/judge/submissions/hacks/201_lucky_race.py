# programs read, add and write one number without atomics | task: total | expect: incorrect wrong_values | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def total_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr, tl.load(y_ptr) + tl.sum(x * x))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros((), device=x.device)
        total_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
