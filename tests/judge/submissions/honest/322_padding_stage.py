# pads K to whole blocks in a stage that has nothing to do where K divides evenly | task: matmul | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pad_columns(x_ptr, cols, padded, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = cols + tl.arange(0, BLOCK)
    tl.store(x_ptr + row * padded + i, 0.0, mask=i < padded)


@triton.jit
def pad_rows(x_ptr, rows, padded, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for row in range(rows, padded):
        tl.store(x_ptr + row * cols + i, 0.0, mask=i < cols)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        padded = triton.cdiv(K, 16) * 16
        left = torch.empty(M, padded, device=a.device)
        right = torch.empty(padded, N, device=a.device)
        left[:, :K] = a
        right[:K] = b
        pad_columns[(M,)](left, K, padded, BLOCK=16)
        pad_rows[(triton.cdiv(N, 64),)](right, K, padded, N, BLOCK=64)
        c = torch.empty(M, N, device=a.device)
        product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](left, right, c, M, N, padded, BM=32, BN=32, BK=16)
        return c
