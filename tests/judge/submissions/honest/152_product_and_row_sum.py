# product, sigmoid and the sum over all features in one kernel | task: linear_sigmoid_sum | expect: ok
import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fused_kernel(
    x_ptr, w_ptr, b_ptr, out_ptr, rows, inputs, hidden,
    BLOCK_R: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    row_mask = r[:, None] < rows
    sums = tl.zeros((BLOCK_R,), dtype=tl.float32)
    for h0 in range(0, hidden, BLOCK_H):
        h = h0 + tl.arange(0, BLOCK_H)
        acc = tl.zeros((BLOCK_R, BLOCK_H), dtype=tl.float32)
        for i0 in range(0, inputs, BLOCK_I):
            i = i0 + tl.arange(0, BLOCK_I)
            x = tl.load(x_ptr + r[:, None] * inputs + i[None, :], mask=row_mask & (i[None, :] < inputs), other=0.0)
            w = tl.load(
                w_ptr + h[None, :] * inputs + i[:, None],
                mask=(h[None, :] < hidden) & (i[:, None] < inputs),
                other=0.0,
            )
            acc = tl.dot(x, w, acc, input_precision="tf32x3")
        acc += tl.load(b_ptr + h, mask=h < hidden, other=0.0)[None, :]
        act = tl.where(h[None, :] < hidden, tl.sigmoid(acc), 0.0)
        sums += tl.sum(act, axis=1)
    tl.store(out_ptr + r, sums, mask=r < rows)


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden_size, input_size))
        self.bias = nn.Parameter(torch.empty(hidden_size))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        bound = 1 / math.sqrt(input_size)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x):
        rows, inputs = x.shape
        out = torch.empty((rows, 1), device=x.device, dtype=x.dtype)
        fused_kernel[(triton.cdiv(rows, 32),)](
            x.contiguous(), self.weight, self.bias, out, rows, inputs, self.weight.shape[0],
            BLOCK_R=32, BLOCK_H=64, BLOCK_I=32,
        )  # fmt: skip
        return out
