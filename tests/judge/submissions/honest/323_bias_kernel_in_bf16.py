# product, bias and activation in kernels of their own, in bf16 | task: half_linear | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def add_bias(y_ptr, b_ptr, n, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i, mask=i < n) + tl.load(b_ptr + i % cols, mask=i < n).to(tl.float32)
    tl.store(y_ptr + i, y, mask=i < n)


@triton.jit
def activation(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.maximum(tl.load(x_ptr + i, mask=i < n), 0.0).to(tl.bfloat16), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.bfloat16)

    def forward(self, x):
        x = x.contiguous()
        (M, K), N = x.shape, self.linear.out_features
        hidden = torch.empty(M, N, device=x.device)
        y = torch.empty(M, N, device=x.device, dtype=x.dtype)
        product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](x, self.linear.weight, hidden, M, N, K, BM=32, BN=32, BK=32)
        add_bias[(triton.cdiv(M * N, 1024),)](hidden, self.linear.bias, M * N, N, BLOCK=1024)
        activation[(triton.cdiv(M * N, 1024),)](hidden, y, M * N, BLOCK=1024)
        return y
