# a reduction of pairs of value and index, with ties to the smaller index | task: min_with_index | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def smaller(value_a, index_a, value_b, index_b):
    take_a = (value_a < value_b) | ((value_a == value_b) & (index_a < index_b))
    return tl.where(take_a, value_a, value_b), tl.where(take_a, index_a, index_b)


@triton.jit
def row_min(x_ptr, value_ptr, index_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=float("inf"))
    value, index = tl.reduce((x, i), 0, smaller)
    tl.store(value_ptr + row, value)
    tl.store(index_ptr + row, index.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        values = x.new_empty(rows)
        indices = torch.empty(rows, device=x.device, dtype=torch.int64)
        row_min[(rows,)](x.contiguous(), values, indices, cols, BLOCK=triton.next_power_of_2(cols), num_warps=4)
        return values, indices
