# the scale of a norm from half of each row | task: half_rms_norm | expect: incorrect
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, w_ptr, y_ptr, cols, part, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < cols
    x = tl.load(x_ptr + row * cols + i, mask=mask, other=0.0).to(tl.float32)
    some = tl.where(i < part, x, 0.0)
    y = x * tl.rsqrt(tl.sum(some * some) / part + 1e-6)
    y = y.to(tl.float16) * tl.load(w_ptr + i, mask=mask)
    tl.store(y_ptr + row * cols + i, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(cols, dtype=torch.float16))

    def forward(self, x):
        y, cols = torch.empty_like(x), x.shape[1]
        kernel[(len(x),)](x, self.weight, y, cols, cols // 2, BLOCK=triton.next_power_of_2(cols))
        return y
