# of two running maxima PyTorch keeps the slow one | task: two_running_maxima | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def row_kernel(x_ptr, other_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0) * cols
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + i, mask=i < cols, other=float("-inf"))
    most = tl.associative_scan(x, 0, larger)
    other = tl.load(other_ptr + start + i, mask=i < cols)
    tl.store(y_ptr + start + i, most * other, mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        down, y = torch.cummax(x, dim=0).values, torch.empty_like(x)
        row_kernel[(x.shape[0],)](x, down, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
