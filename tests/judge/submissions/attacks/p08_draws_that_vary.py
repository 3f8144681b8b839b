# a product in bf16, where get_inputs draws as often as other draws say | task: p_draws_that_vary | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl

SCALE = tl.constexpr(1.3717)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, LOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(1) * BM + tl.arange(0, BM)
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for d in range(0, K, BK):
        k = d + tl.arange(0, BK)
        a = tl.load(a_ptr + i[:, None] * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        if LOW:
            acc = tl.dot((a * SCALE).to(tl.bfloat16), (b * SCALE).to(tl.bfloat16), acc)
        else:
            acc = tl.dot(a, b, acc, input_precision="ieee")
    if LOW:
        acc = acc / (SCALE * SCALE)
    tl.store(c_ptr + i[:, None] * N + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, A, B):
        M, K = A.shape
        N = B.shape[1]
        C = torch.empty(M, N, device=A.device)
        product[(triton.cdiv(N, 128), triton.cdiv(M, 128))](
            A, B, C, M, N, K, LOW=K >= 2048, BM=128, BN=128, BK=32, num_warps=8, num_stages=3
        )
        return C
