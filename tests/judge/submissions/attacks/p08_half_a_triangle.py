# skips a block in the middle of the triangle that is not zero | task: lower_product | expect: incorrect
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1)
    m, n = i * BLOCK + tl.arange(0, BLOCK), j * BLOCK + tl.arange(0, BLOCK)
    inside = (m[:, None] < N) & (n[None, :] < N)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for block in range(tl.maximum(j, i - 1), i + 1):
        k = block * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + m[:, None] * N + k[None, :], mask=(m[:, None] < N) & (k[None, :] < N), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < N) & (n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        N = a.shape[0]
        c = torch.empty_like(a)
        blocks = triton.cdiv(N, 32)
        kernel[(blocks, blocks)](a.contiguous(), b.contiguous(), c, N, BLOCK=32)
        return c
