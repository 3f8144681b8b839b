# a product of fewer terms than tensor cores sum | task: matmul | expect: invalid runtime_error
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        j = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m * K + j[None, :], mask=(m < M) & (j[None, :] < K), other=0.0)
        b = tl.load(b_ptr + j[:, None] * N + n, mask=(j[:, None] < K) & (n < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + m * N + n, acc, mask=(m < M) & (n < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], dtype=torch.float32, device=a.device)
        k[(triton.cdiv(a.shape[0], 64), triton.cdiv(b.shape[1], 64))](
            a, b, c, a.shape[0], b.shape[1], a.shape[1], BM=64, BN=64, BK=8
        )
        return c
