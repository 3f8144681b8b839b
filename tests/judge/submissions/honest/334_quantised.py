# a norm and eight bits in one kernel | task: quantised | expect: ok
# One of a million numbers lies so near a half that rounding decides.
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def quantise(x_ptr, w_ptr, y_ptr, s_ptr, N, eps, B: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, B)
    x = tl.load(x_ptr + row * N + j, mask=j < N, other=0.0)
    w = tl.load(w_ptr + j, mask=j < N, other=0.0)
    y = x * tl.rsqrt(tl.sum(x * x) / N + eps) * w
    scale = tl.max(tl.abs(y)) / 127.0
    tl.store(s_ptr + row, scale)
    tl.store(y_ptr + row * N + j, libdevice.rint(y / scale).to(tl.int8), mask=j < N)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        M, N = x.shape
        y = torch.empty(M, N, device=x.device, dtype=torch.int8)
        s = torch.empty(M, 1, device=x.device)
        quantise[(M,)](x, self.weight, y, s, N, 1e-6, B=triton.next_power_of_2(N))
        return y, s
