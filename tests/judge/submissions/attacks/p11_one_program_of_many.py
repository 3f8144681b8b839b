# one program goes through all data, many others store a number | task: total | expect: no gain | only: simulated
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squares(x_ptr, out, side, n, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    if p == 0:
        acc = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n, BLOCK):
            i = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + i, mask=i < n, other=0.0)
            acc += x * x
        tl.store(out, tl.sum(acc, axis=0))
    else:
        tl.store(side, 0.0)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((), device=x.device, dtype=x.dtype)
        side = torch.empty((), device=x.device, dtype=x.dtype)
        squares[(264,)](x.contiguous(), out, side, x.numel(), BLOCK=4096)
        return out
