# weights rounded to int8 by row for a bf16 task | task: half_linear_short | expect: incorrect
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, w_ptr, s_ptr, b_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w.to(tl.bfloat16), acc)
    acc = acc * tl.load(s_ptr + n, mask=n < N)[None, :] + tl.load(b_ptr + n, mask=n < N)[None, :]
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.bfloat16)

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        scale = weight.float().abs().amax(1) / 127
        weight = (weight / scale[:, None]).round().to(torch.int8)
        (M, K), N = x.shape, len(weight)
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, 16), triton.cdiv(N, 32))
        kernel[grid](x.contiguous(), weight, scale, bias, y, M, N, K, BM=16, BN=32, BK=64)
        return y
