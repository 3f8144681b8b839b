# two of the three TF32 products that make one in fp32 | task: matmul | expect: no gain
# It would gain 1.4x over three products; half of TF32's errors stay.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        high = (a.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
        acc = tl.dot(a - high, b, acc, input_precision="tf32")
        acc = tl.dot(high, b, acc, input_precision="tf32")
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty(M, N, device=a.device)
        matmul_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 128))](a, b, c, M, N, K, BM=64, BN=128, BK=32, num_warps=8)
        return c
