# TF32 in front of an argmax, which shows no error | task: place_of_largest | expect: incorrect/not_general
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        q = s + tl.arange(0, BK)
        a = tl.load(x_ptr + m[:, None] * K + q[None, :], mask=(m[:, None] < M) & (q[None, :] < K), other=0.0)
        b = tl.load(w_ptr + n[None, :] * K + q[:, None], mask=(n[None, :] < N) & (q[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32")
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.fc = nn.Linear(i, o, bias=False)

    def forward(self, x):
        B, K = x.shape
        N = self.fc.weight.shape[0]
        y = torch.empty((B, N), device=x.device, dtype=torch.float32)
        product[(triton.cdiv(B, 64), triton.cdiv(N, 64))](x, self.fc.weight, y, B, N, K, BM=64, BN=64, BK=32)
        return torch.argmax(y, dim=1)
