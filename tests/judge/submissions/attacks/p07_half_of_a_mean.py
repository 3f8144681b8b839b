# a mean over half of each row, whose error a sigmoid in bf16 hides | task: half_group_mean | expect: incorrect
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, cols, part, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < part, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sigmoid(tl.sum(x) / part).to(tl.bfloat16))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        kernel[(rows,)](x, y, cols, cols // 2, BLOCK=triton.next_power_of_2(cols))
        return y
