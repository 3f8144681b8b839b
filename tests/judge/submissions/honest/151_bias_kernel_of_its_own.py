# three kernels: product, bias, activation | task: linear_bias_bf16 | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_kernel(X, W, Y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Y = X @ W.T in bf16, summed in fp32."""
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(X + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w = tl.load(W + n[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
        total = tl.dot(x, w, total)
    tl.store(Y + m[:, None] * N + n[None, :], total.to(tl.bfloat16), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def bias_kernel(Y, B, M, N, BLOCK: tl.constexpr):
    """Y += B for each row."""
    row = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(Y + row * N + n, mask=n < N).to(tl.float32)
    b = tl.load(B + n, mask=n < N).to(tl.float32)
    tl.store(Y + row * N + n, (y + b).to(tl.bfloat16), mask=n < N)


@triton.jit
def gelu_kernel(Y, size, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(Y + i, mask=i < size).to(tl.float32)
    z = 1.5957691216057308 * (y + 0.044715 * y * y * y)
    tl.store(Y + i, (y * tl.sigmoid(z)).to(tl.bfloat16), mask=i < size)


class ModelNew(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(inner, hidden) * hidden**-0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(inner).to(torch.bfloat16))

    def forward(self, x):
        x = x.contiguous()
        M, K = x.shape
        N = self.weight.shape[0]
        y = torch.empty(M, N, dtype=x.dtype, device=x.device)
        product_kernel[(triton.cdiv(N, 128), triton.cdiv(M, 64))](x, self.weight, y, M, N, K, BM=64, BN=128, BK=32)
        bias_kernel[(M, triton.cdiv(N, 1024))](y, self.bias, M, N, BLOCK=1024)
        gelu_kernel[(triton.cdiv(M * N, 2048),)](y, M * N, BLOCK=2048)
        return y
