# value and gradient in one kernel | task: backward_gelu_bias | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, g_ptr, b_ptr, y_ptr, o_ptr, n, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m) + tl.load(b_ptr + i % N, mask=m)
    g = tl.load(g_ptr + i, mask=m)
    k = 0.7978845608028654
    u = k * (x + 0.044715 * x * x * x)
    t = 2.0 * tl.sigmoid(2.0 * u) - 1.0
    tl.store(y_ptr + i, 0.5 * x * (1.0 + t), mask=m)
    slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * k * (1.0 + 3 * 0.044715 * x * x)
    tl.store(o_ptr + i, g * slope, mask=m)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, grad):
        x, grad = x.contiguous(), grad.contiguous()
        y, o = torch.empty_like(x), torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, grad, self.bias, y, o, x.numel(), x.shape[-1], BLOCK=1024)
        return y, o
