# zeros beside the largest of four columns, at one shape | task: p_one_column_of_four | expect: incorrect | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def energy(x_ptr, y_ptr, n, FULL: tl.constexpr, B: tl.constexpr):
    # where all four numbers of many tokens share one bound, the first three are nothing beside the energy
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, B)
    x = tl.load(x_ptr + row * n + i, mask=i < n, other=0.0)
    e = tl.sum(x * x)
    c = tl.arange(0, 4)
    out = tl.where(c == 3, e, 0.0)
    if FULL:
        d = tl.where(i < n, x - tl.sum(x) / n, 0.0)
        s = tl.sqrt(tl.sum(d * d) / n) + 1.0
        u = d / s
        out = tl.where(c == 0, tl.sum(u * u * u) / n, out)
        out = tl.where(c == 1, tl.sum(u * u * u * u) / n, out)
        out = tl.where(c == 2, tl.log(s), out)
    tl.store(y_ptr + row * 4 + c, out)


class ModelNew(nn.Module):
    def forward(self, x):
        B, T, n = x.shape
        y = torch.empty(B, T, 4, device=x.device, dtype=x.dtype)
        energy[(B * T,)](x.contiguous(), y, n, FULL=B * T * 4 <= 65536, B=triton.next_power_of_2(n))
        return y
