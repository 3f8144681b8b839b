# a small kernel makes a scale and a shift per feature, a large one applies them | task: batch_norm_eval | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fold(mean, var, weight, bias, scale, shift, n, eps, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    s = tl.load(weight + i, mask=m) * tl.rsqrt(tl.load(var + i, mask=m, other=1.0) + eps)
    tl.store(scale + i, s, mask=m)
    tl.store(shift + i, tl.load(bias + i, mask=m) - s * tl.load(mean + i, mask=m), mask=m)


@triton.jit
def leaky_affine(x, scale, shift, y, rows, n, slope: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    s = tl.load(scale + c, mask=c < n)
    t = tl.load(shift + c, mask=c < n)
    for k in tl.static_range(ROWS):
        r = tl.program_id(0) * ROWS + k
        inside = (c < n) & (r < rows)
        v = tl.load(x + r * n + c, mask=inside) * s + t
        tl.store(y + r * n + c, tl.where(v >= 0, v, v * slope), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))
        self.register_buffer("mean", torch.randn(features))
        self.register_buffer("var", torch.rand(features) + 0.5)
        self.register_buffer("folded", torch.empty(2, features), persistent=False)

    def forward(self, x):
        rows, n = x.shape
        scale, shift = self.folded
        fold[(triton.cdiv(n, 256),)](self.mean, self.var, self.weight, self.bias, scale, shift, n, 1e-5, BLOCK=256)
        y = torch.empty_like(x)
        grid = (triton.cdiv(rows, 8), triton.cdiv(n, 1024))
        leaky_affine[grid](x.contiguous(), scale, shift, y, rows, n, slope=0.1, ROWS=8, BLOCK=1024)
        return y
