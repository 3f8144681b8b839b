# means of segments between offsets | task: jagged_mean | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, y_ptr, D, BLOCK: tl.constexpr, R: tl.constexpr):
    b = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    r = tl.arange(0, R)
    start = tl.load(o_ptr + b)
    end = tl.load(o_ptr + b + 1)
    acc = tl.zeros((R, BLOCK), tl.float32)
    for t in range(start, end, R):
        i = t + r
        acc += tl.load(x_ptr + i[:, None] * D + c[None, :], mask=(i[:, None] < end) & (c[None, :] < D), other=0.0)
    n = tl.maximum(end - start, 1).to(tl.float32)
    tl.store(y_ptr + b * D + c, tl.sum(acc, 0) / n, mask=c < D)


class ModelNew(nn.Module):
    def forward(self, x, offsets):
        B, D = offsets.numel() - 1, x.shape[1]
        y = torch.empty(B, D, device=x.device)
        k[(B, triton.cdiv(D, 128))](x, offsets, y, D, BLOCK=128, R=8)
        return y
