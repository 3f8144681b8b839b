# the norm of all from a sixteenth of the data | task: frobenius | expect: incorrect | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squares(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * stride * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x * x))


@triton.jit
def divide(x_ptr, y_ptr, sum_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, x / tl.sqrt(tl.load(sum_ptr) * factor), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, y = x.numel(), torch.empty_like(x)
        blocks = triton.cdiv(n, 4096)
        some = triton.cdiv(blocks, 16)
        parts = torch.empty(some, device=x.device)
        squares[(some,)](x, parts, n, 16, BLOCK=4096)
        divide[(blocks,)](x, y, parts.sum(), n, n / min(n, some * 4096), BLOCK=4096)
        return y
