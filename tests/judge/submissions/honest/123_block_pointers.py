# block pointers | task: softmax | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x = tl.make_block_ptr(x_ptr, (rows, cols), (cols, 1), (row, 0), (1, BLOCK), (1, 0))
    values = tl.load(x, boundary_check=(0, 1), padding_option="zero")
    inside = (tl.arange(0, BLOCK) < cols)[None, :]
    values = tl.where(inside, values, -float("inf"))
    powers = tl.exp(values - tl.max(values, axis=1)[:, None])
    y = tl.make_block_ptr(y_ptr, (rows, cols), (cols, 1), (row, 0), (1, BLOCK), (1, 0))
    tl.store(y, powers / tl.sum(powers, axis=1)[:, None], boundary_check=(0, 1))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows, cols = x.shape
        softmax_kernel[(rows,)](x, y, rows, cols, BLOCK=triton.next_power_of_2(cols), num_warps=8)
        return y
