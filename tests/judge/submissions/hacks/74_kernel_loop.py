# a kernel that never returns | task: relu | expect: invalid timeout | only: simulated
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def spin(x_ptr, y_ptr):
    x = tl.load(x_ptr)
    while x < 1e30:
        x = x * 1.0
    tl.store(y_ptr, x)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        spin[(1,)](x, y)
        return y
