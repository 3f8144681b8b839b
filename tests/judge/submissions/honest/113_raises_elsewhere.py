# refuses other shapes with a clear error | task: exact_shape | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2 * tl.sigmoid(tl.load(x_ptr + i)))


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape != (16, 64):
            raise ValueError(f"only 16 x 64 is supported, found {tuple(x.shape)}")
        y = torch.empty_like(x)
        kernel[(1,)](x, y, BLOCK=1024)
        return y
