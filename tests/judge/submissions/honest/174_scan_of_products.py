# associative_scan with a combine function of its own that multiplies | task: cumprod | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def cumprod_rows(x_ptr, y_ptr, rows, length, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    carry = tl.full((ROWS, 1), 1.0, tl.float32)
    for start in range(0, length, BLOCK):
        c = start + tl.arange(0, BLOCK)[None, :]
        mask = (r < rows) & (c < length)
        x = tl.load(x_ptr + r * length + c, mask=mask, other=1.0)
        products = tl.associative_scan(x, 1, multiply)
        tl.store(y_ptr + r * length + c, products * carry, mask=mask)
        carry *= tl.reduce(x, 1, multiply, keep_dims=True)


class ModelNew(nn.Module):
    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1]).contiguous()
        y = torch.empty_like(x)
        cumprod_rows[(triton.cdiv(x.shape[0], 2),)](x, y, x.shape[0], x.shape[1], ROWS=2, BLOCK=512)
        return y.view(shape)
