# a loop in a helper named as a built-in; program 0 does everything | task: total | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def abs(x_ptr, first, n, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        acc += x * x
    return tl.sum(acc, axis=0)


@triton.jit
def squares(x_ptr, out, n, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    tl.atomic_add(out, abs(x_ptr, p * n, n, BLOCK))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros((), device=x.device, dtype=x.dtype)
        squares[(triton.cdiv(x.numel(), 131072),)](x.contiguous(), out, x.numel(), BLOCK=4096)
        return out
