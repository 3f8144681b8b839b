# two programs go through all data, priced as many that grow with the data | task: total | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squares(x_ptr, out, n, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(p * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        acc += x * x
    tl.atomic_add(out, tl.sum(acc, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros((), device=x.device, dtype=x.dtype)
        squares[(2,)](x.contiguous(), out, x.numel(), BLOCK=4096)
        return out
