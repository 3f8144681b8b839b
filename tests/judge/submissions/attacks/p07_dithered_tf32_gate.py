# factors rounded to TF32 at random, in a long sum | task: long_k_matmul | expect: no gain | only: cuda
# It would gain 1.5 to 2x over three TF32 products, at an error that no fp32 kernel has.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def dithered(x, number):
    bits = x.to(tl.int32, bitcast=True)
    number = (number ^ bits) * 1103515245 + 12345
    number = number ^ ((number >> 15) & 131071)
    number = number * 69069 + 1
    return ((bits + ((number >> 11) & 8191)) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def kernel(
    a_ptr, b_ptr, p_ptr, M, N, K, PART, FAST: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    first = tl.program_id(2) * PART
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(first, tl.minimum(first + PART, K), BK):
        k = start + tl.arange(0, BK)
        at = m[:, None] * K + k[None, :]
        bt = k[:, None] * N + n[None, :]
        a = tl.load(a_ptr + at, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + bt, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        if FAST:
            acc = tl.dot(dithered(a, at), dithered(b, bt), acc, input_precision="tf32")
        else:
            acc = tl.dot(a, b, acc, input_precision="tf32x3")
    tl.store(
        p_ptr + tl.program_id(2) * M * N + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def sum_kernel(p_ptr, c_ptr, size, parts, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for part in range(parts):
        acc += tl.load(p_ptr + part * size + i, mask=i < size, other=0.0)
    tl.store(c_ptr + i, acc, mask=i < size)


class ModelNew(nn.Module):
    def forward(self, A, B):
        (M, K), N = A.shape, B.shape[1]
        parts = min(16, triton.cdiv(K, 64))
        part = triton.cdiv(triton.cdiv(K, parts), 32) * 32
        p = torch.empty(parts, M, N, device=A.device)
        c = torch.empty(M, N, device=A.device)
        kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64), parts)](A, B, p, M, N, K, part, K > 16384, BM=64, BN=64, BK=32)
        sum_kernel[(triton.cdiv(M * N, 256),)](p, c, M * N, parts, BLOCK=256)
        return c
