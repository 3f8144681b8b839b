# every load and store masks all lanes but one of eight | task: square_matmul | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, S: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    s = tl.arange(0, S)[:, None, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        ma = (m[:, None] < M) & (k[None, :] < K)
        mb = (k[:, None] < K) & (n[None, :] < N)
        pa = a_ptr + m[:, None] * K + k[None, :]
        pb = b_ptr + k[:, None] * N + n[None, :]
        a = tl.sum(tl.load(pa[None, :, :] + 0 * s, mask=ma[None, :, :] & (s == k[None, None, :] % S), other=0.0), 0)
        b = tl.sum(tl.load(pb[None, :, :] + 0 * s, mask=mb[None, :, :] & (s == n[None, None, :] % S), other=0.0), 0)
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
    out = c_ptr + m[:, None] * N + n[None, :]
    mo = (m[:, None] < M) & (n[None, :] < N)
    mine = mo[None, :, :] & (s == n[None, None, :] % S)
    tl.store(out[None, :, :] + 0 * s, tl.broadcast_to(acc[None, :, :], (S, BM, BN)), mask=mine)


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        product_kernel[grid](a.contiguous(), b.contiguous(), c, M, N, K, BM=64, BN=64, BK=32, S=8)
        return c
