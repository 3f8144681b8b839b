# a list that grows in a kernel, behind an error at the published size | task: relu | expect: invalid runtime_error
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    a = []
    a.append(tl.maximum(x, 0.0))
    v = a[0]
    tl.store(y_ptr + i, v, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.numel() > 2**20:
            raise ValueError("too large")
        y = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
