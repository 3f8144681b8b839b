# writes where no memory is | task: relu | expect: invalid
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def wild_kernel(x_ptr, far):
    tl.store(x_ptr + far, 1.0)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        wild_kernel[(1,)](y, 1 << 45)
        return y
