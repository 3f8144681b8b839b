# a kernel zeroes what atomics add up in | task: total | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def zero(sum_ptr):
    tl.store(sum_ptr, 0.0)


@triton.jit
def add_squares(x_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.atomic_add(sum_ptr, tl.sum(x * x))


class ModelNew(nn.Module):
    def forward(self, x):
        total = torch.empty((), device=x.device)
        zero[(1,)](total)
        add_squares[(triton.cdiv(x.numel(), 4096),)](x.contiguous(), total, x.numel(), BLOCK=4096)
        return total
