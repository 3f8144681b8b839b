# tokens sorted by their expert | task: mixture_of_experts | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, w_ptr, y_ptr, order_ptr, end_ptr, T, D, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    e = tl.program_id(0)
    pn = tl.program_id(1)
    start = tl.load(end_ptr + e - 1, mask=e > 0, other=0)
    end = tl.load(end_ptr + e)
    rn = pn * BN + tl.arange(0, BN)
    for s in range(start, end, BM):
        i = s + tl.arange(0, BM)
        t = tl.load(order_ptr + i, mask=i < end, other=0)
        acc = tl.zeros((BM, BN), tl.float32)
        for q in range(0, D, BK):
            rk = q + tl.arange(0, BK)
            a = tl.load(x_ptr + t[:, None] * D + rk[None, :], mask=(i[:, None] < end) & (rk[None, :] < D), other=0.0)
            b = tl.load(
                w_ptr + e * D * D + rk[:, None] * D + rn[None, :], mask=(rk[:, None] < D) & (rn[None, :] < D), other=0.0
            )
            acc = tl.dot(a, b, acc)
        tl.store(y_ptr + t[:, None] * D + rn[None, :], acc.to(tl.bfloat16), mask=(i[:, None] < end) & (rn[None, :] < D))


class ModelNew(nn.Module):
    def __init__(self, experts, width):
        super().__init__()
        self.w = nn.Parameter((torch.randn(experts, width, width) * width**-0.5).bfloat16())

    def forward(self, x, expert):
        T, D = x.shape
        E = self.w.shape[0]
        order = torch.argsort(expert)
        end = torch.cumsum(torch.bincount(expert, minlength=E), 0)
        y = torch.empty_like(x)
        k[(E, triton.cdiv(D, 64))](x, self.w, y, order, end, T, D, BM=64, BN=64, BK=32)
        return y
