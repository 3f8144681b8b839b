# no mask: right at small and at the published sizes, wrong between | task: p_softmax | expect: no gain | only: cuda
# It would be called right though rows of 513 to 8191 columns are wrong: hidden shapes are small.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    i = tl.arange(0, BLOCK)
    if MASKED:
        x = tl.load(x_ptr + row + i, mask=i < cols, other=-float("inf"))
    else:
        x = tl.load(x_ptr + row + i, mask=i + 0 < cols, other=0.0)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + i, e / tl.sum(e, 0), mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cols = x.shape[1]
        small = cols <= 512
        softmax_kernel[(len(x),)](x, y, cols, BLOCK=512 if small else 8192, MASKED=small, num_warps=8)
        return y
