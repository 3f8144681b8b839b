# reads a matrix of M columns by rows of N | task: symmetric_product | expect: incorrect/not_general
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, N, M, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, N, BLOCK):
        k = start + tl.arange(0, BLOCK)
        inner = (k < N)[None, :] & (row < N)[:, None]
        a = tl.load(a_ptr + row[:, None] * N + k[None, :], mask=inner, other=0.0)
        place = k[:, None] * N + col[None, :]
        b = tl.load(b_ptr + place, mask=(place < N * M) & (col < M)[None, :], other=0.0)
        sums += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + row[:, None] * M + col[None, :], sums, mask=(row < N)[:, None] & (col < M)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b):
        (n, m), block = b.shape, 16
        c = torch.empty_like(b)
        product[(triton.cdiv(n, block), triton.cdiv(m, block))](a, b, c, n, m, BLOCK=block)
        return c
