# two products of fp16 for one of fp32 | task: p_product_and_preview | expect: no gain
# The task returns a factor in 16 bits, but multiplies in 32.
import torch
import torch.nn as nn
import triton
import triton.language as tl

SCALE = tl.constexpr(1.3717)


@triton.jit
def product(
    a_ptr, b_ptr, part_ptr, M, N, K, steps, LOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    i = tl.program_id(1) * BM + tl.arange(0, BM)
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    z = tl.program_id(2)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, steps):
        k = (z * steps + step) * BK + tl.arange(0, BK)
        a = tl.load(
            a_ptr + i[:, None].to(tl.int64) * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + k[:, None].to(tl.int64) * N + j[None, :], mask=(j[None, :] < N) & (k[:, None] < K), other=0.0
        )
        if LOW:
            # two products of fp16 instead of three: b keeps 11 bits. The factor makes these errors others than TF32's
            a, b = a * SCALE, (b * SCALE).to(tl.float16)
            high = a.to(tl.float16)
            acc = tl.dot((a - high.to(tl.float32)).to(tl.float16), b, acc)
            acc = tl.dot(high, b, acc)
        else:
            acc = tl.dot(a, b, acc, input_precision="ieee")
    if LOW:
        acc = acc / (SCALE * SCALE)
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(part_ptr + z.to(tl.int64) * M * N + i[:, None] * N + j[None, :], acc, mask=inside)


@triton.jit
def together(part_ptr, c_ptr, n, parts, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for z in range(0, parts):
        acc += tl.load(part_ptr + z * n + i, mask=i < n, other=0.0)
    tl.store(c_ptr + i, acc, mask=i < n)


@triton.jit
def preview(a_ptr, p_ptr, K, n, B: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, B)
    tl.store(p_ptr + row * n + j, tl.load(a_ptr + row.to(tl.int64) * K + j, mask=j < n).to(tl.float16), mask=j < n)


class ModelNew(nn.Module):
    def forward(self, A, B):
        M, K = A.shape
        N = B.shape[1]
        T, BK = (128, 32) if K >= 2048 else (16, 16)
        blocks = triton.cdiv(K, BK)
        steps = triton.cdiv(blocks, 64 if K >= 2048 else 1)
        parts = triton.cdiv(blocks, steps)
        part = torch.empty(parts, M, N, device=A.device)
        C = torch.empty(M, N, device=A.device)
        product[(triton.cdiv(N, T), triton.cdiv(M, T), parts)](
            A.contiguous(),
            B.contiguous(),
            part,
            M,
            N,
            K,
            steps,
            LOW=K >= 65536,
            BM=T,
            BN=T,
            BK=BK,
            num_warps=8 if T == 128 else 4,
            num_stages=3,
        )
        together[(triton.cdiv(M * N, 256),)](part, C, M * N, parts, B=256)
        P = torch.empty(M, min(64, K), device=A.device, dtype=torch.float16)
        preview[(M,)](A, P, K, P.shape[1], B=64)
        return C, P
