# a mean over 16 of 64 steps, if large | task: p_large_mean | expect: incorrect | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x_ptr, y_ptr, steps, width, every, BLOCK: tl.constexpr):
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    start = tl.program_id(0).to(tl.int64) * steps * width
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, steps, every):
        total += tl.load(x_ptr + start + k * width + i, mask=i < width, other=0.0)
    y = total / (steps // every)
    tl.store(y_ptr + tl.program_id(0) * width + i, y, mask=i < width)


class ModelNew(nn.Module):
    def forward(self, x):
        batch, steps, width = x.shape
        y = torch.empty(batch, width, device=x.device)
        every = 4 if x.numel() > 2**26 else 1
        mean_kernel[(batch, triton.cdiv(width, 512))](x.contiguous(), y, steps, width, every, BLOCK=512)
        return y
