# reads the lower triangle of a symmetric matrix alone | task: symmetric_product | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, N, M, BLOCK: tl.constexpr):
    i, j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, N, BLOCK):
        k = start + tl.arange(0, BLOCK)
        high, low = tl.maximum(i[:, None], k[None, :]), tl.minimum(i[:, None], k[None, :])
        a = tl.load(a_ptr + high * N + low, mask=high < N, other=0.0)
        b = tl.load(b_ptr + k[:, None] * M + j[None, :], mask=(k[:, None] < N) & (j[None, :] < M), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + i[:, None] * M + j[None, :], acc, mask=(i[:, None] < N) & (j[None, :] < M))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (N, M), c = b.shape, torch.empty_like(b)
        kernel[(triton.cdiv(N, 32), triton.cdiv(M, 32))](a.contiguous(), b.contiguous(), c, N, M, BLOCK=32)
        return c
