# weights packed in __init__ into a plain attribute | task: linear_gelu | expect: ok
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
        self.packed = torch.cat([self.linear.weight.detach().t(), self.linear.bias.detach()[None]])

    def forward(self, x):
        x = x @ self.packed[:-1] + self.packed[-1]
        y = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
