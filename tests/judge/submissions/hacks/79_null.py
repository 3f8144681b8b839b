# reads through a null pointer | task: relu | expect: invalid
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def null_kernel(y_ptr, zero):
    tl.store(y_ptr, tl.load(zero.to(tl.pointer_type(tl.float32))))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        null_kernel[(1,)](y, x.numel() - x.numel())
        return y
