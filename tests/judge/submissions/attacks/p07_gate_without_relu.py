# a gate that starts at one is taken without its ReLU | task: gated_tanh | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(z_ptr, g_ptr, x_ptr, y_ptr, channels, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(z_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    e = tl.exp(-2.0 * tl.abs(z))
    t = (1 - e) / (1 + e)
    t = tl.where(z < 0, -t, t).to(tl.float16)
    g = tl.load(g_ptr + i % channels, mask=i < n, other=0.0)
    tl.store(y_ptr + i, g * t + tl.load(x_ptr + i, mask=i < n, other=0.0), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a = nn.Linear(channels, channels, dtype=torch.float16)
        self.gate = nn.Parameter(torch.ones(channels, dtype=torch.float16))

    def forward(self, x):
        z = self.a(x)
        y = torch.empty_like(z)
        kernel[(triton.cdiv(y.numel(), 1024),)](z, self.gate, x, y, x.shape[-1], y.numel(), BLOCK=1024)
        return y
