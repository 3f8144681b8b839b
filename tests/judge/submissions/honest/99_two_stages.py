# a reduction in two stages with a workspace | task: total | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x * x))


@triton.jit
def finish(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr, tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0)))


class ModelNew(nn.Module):
    def forward(self, x):
        count = triton.cdiv(x.numel(), 512)
        workspace = torch.empty(count, device=x.device, dtype=x.dtype)
        y = torch.empty((), device=x.device, dtype=x.dtype)
        partial[(count,)](x, workspace, x.numel(), BLOCK=512)
        finish[(1,)](workspace, y, count, BLOCK=triton.next_power_of_2(count))
        return y
