# reads a transposed input through its strides | task: strided | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, cols, sx0, sx1, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, cols, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * sx0 + i * sx1, mask=i < cols)
        tl.store(y_ptr + row * cols + i, 2 * tl.sigmoid(2 * x), mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), x.stride(1), BLOCK=128)
        return y
