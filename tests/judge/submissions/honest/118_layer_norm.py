# layer norm with its affine | task: layer_norm | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, w_ptr, b_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < cols
    x = tl.load(x_ptr + row * cols + i, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x) / cols, 0.0)
    y = centred * tl.rsqrt(tl.sum(centred * centred) / cols + eps)
    y = y * tl.load(w_ptr + i, mask=mask) + tl.load(b_ptr + i, mask=mask)
    tl.store(y_ptr + row * cols + i, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(cols))
        self.bias = nn.Parameter(torch.zeros(cols))

    def forward(self, x):
        y = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        kernel[(x.shape[0],)](x, self.weight, self.bias, y, x.shape[1], 1e-5, BLOCK=block)
        return y
