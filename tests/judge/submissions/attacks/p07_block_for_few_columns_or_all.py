# a block of 512 columns, or one without a mask for 8192 | task: p_softmax | expect: not_general wrong_on_other_shape
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
