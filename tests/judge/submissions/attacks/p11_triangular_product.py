# sums of all numbers before each one, as a product: its sums are as long as a row | task: cumsum | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_kernel(x_ptr, y_ptr, R, N, BR: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BR, BN), tl.float32)
    for start in range(0, N, BN):
        k = start + tl.arange(0, BN)
        x = tl.load(x_ptr + r[:, None] * N + k[None, :], mask=(r[:, None] < R) & (k[None, :] < N), other=0.0)
        one = tl.where(k[:, None] <= n[None, :], 1.0, 0.0)
        acc += tl.dot(x, one, input_precision="ieee")
    tl.store(y_ptr + r[:, None] * N + n[None, :], acc, mask=(r[:, None] < R) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        R, N = x.shape
        y = torch.empty_like(x)
        scan_kernel[(triton.cdiv(R, 32), triton.cdiv(N, 32))](x, y, R, N, BR=32, BN=32)
        return y
