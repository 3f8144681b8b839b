# asks torch for lower precision of products | task: linear_gelu | expect: incorrect wrong_values | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476)), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        torch.set_float32_matmul_precision("medium")
        z = self.linear(x)
        y = torch.empty_like(z)
        gelu_kernel[(triton.cdiv(z.numel(), 1024),)](z, y, z.numel(), BLOCK=1024)
        return y
