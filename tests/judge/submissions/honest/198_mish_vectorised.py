# several elements per lane in two dimensions, one exponential and no logarithm | task: mish_chain | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh_of_softplus(x, THRESHOLD: tl.constexpr = 20.0):
    e = tl.exp(tl.minimum(x, THRESHOLD))
    n = e * (e + 2.0)
    return tl.where(x > THRESHOLD, 1.0, n / (n + 2.0))


@triton.jit
def mish_kernel(x, y, n, sub, mul, LANES: tl.constexpr, EACH: tl.constexpr):
    base = tl.program_id(0) * LANES * EACH
    offsets = base + tl.arange(0, LANES)[:, None] * EACH + tl.arange(0, EACH)[None, :]
    offsets = tl.max_contiguous(tl.multiple_of(offsets, (1, EACH)), (1, EACH))
    v = (tl.load(x + offsets, mask=offsets < n, other=0.0) - sub) * mul
    tl.store(y + offsets, v * tanh_of_softplus(v), mask=offsets < n)


class ModelNew(nn.Module):
    def __init__(self, subtract: float, multiply: float):
        super().__init__()
        self.subtract = float(subtract)
        self.multiply = float(multiply)

    def forward(self, x):
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        mish_kernel[(triton.cdiv(x.numel(), 1024),)](
            x.contiguous(), y, x.numel(), self.subtract, self.multiply, LANES=256, EACH=4
        )
        return y
