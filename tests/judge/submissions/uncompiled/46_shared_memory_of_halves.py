# stages of 16-bit operands, too large for shared memory | task: half_matmul | expect: invalid runtime_error
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(a_ptr, b_ptr, c_ptr, M, N, K, BK: tl.constexpr):
    m = tl.arange(0, 16)[:, None]
    n = tl.arange(0, 16)[None, :]
    acc = tl.zeros([16, 16], tl.float32)
    for start in range(0, K, BK):
        j = start + tl.arange(0, BK)
        a = tl.abs(tl.load(a_ptr + m * K + j[None, :], mask=(m < M) & (j[None, :] < K), other=0.0))
        b = tl.abs(tl.load(b_ptr + j[:, None] * N + n, mask=(n < N) & (j[:, None] < K), other=0.0))
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m * N + n, tl.maximum(acc, 0.0).to(tl.bfloat16), mask=(m < M) & (n < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
        k[(1,)](a, b, c, *c.shape, a.shape[1], BK=2048, num_stages=4)
        return c
