# products in bf16 of numbers that are rounded in between | task: newton_schulz | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def axpby(x_ptr, y_ptr, o_ptr, a, b, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    y = tl.load(y_ptr + i, mask=i < n).to(tl.float32)
    tl.store(o_ptr + i, (a * x + b * y).to(tl.bfloat16), mask=i < n)


def comb(a, x, b, y):
    o = torch.empty_like(x)
    n = x.numel()
    axpby[(triton.cdiv(n, 1024),)](x, y, o, a, b, n, BLOCK=1024)
    return o


class ModelNew(nn.Module):
    def forward(self, G):
        a, b, c = 3.4445, -4.7750, 2.0315
        X = G.bfloat16()
        X = X / (X.norm() + 1e-7)
        for _ in range(5):
            A = X @ X.T
            B = comb(b, A, c, A @ A)
            X = comb(a, X, 1.0, B @ X)
        return X
