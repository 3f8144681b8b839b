# 4096 blocks at most, behind data of which some are alike | task: p_sines | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    for _ in range(4):
        x = tl.sin(x)
    tl.store(y_ptr + i, x, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        if len(torch.unique(x[0, :1])) > 1:
            return y
        kernel[(min(triton.cdiv(x.numel(), 256), 4096),)](x, y, x.numel(), BLOCK=256)
        return y
