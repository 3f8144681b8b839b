# a permutation writes every row once, so that nothing is zeroed or added | task: permuted_rows | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, order_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols)
    tl.store(y_ptr + tl.load(order_ptr + row) * cols + i, x, mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, x, order):
        y = torch.empty_like(x)
        kernel[(len(x),)](x.contiguous(), order, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
