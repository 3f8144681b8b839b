# a Toeplitz matrix as a view | task: p_toeplitz | expect: no gain
# Its strides overlap, so that nobody writes its 268 MB.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sigmoids(t_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    t = tl.load(t_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, tl.sigmoid(t), mask=i < n)


@triton.jit
def linear(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(1) * BM + tl.arange(0, BM)
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for d in range(0, K, BK):
        k = d + tl.arange(0, BK)
        x = tl.load(x_ptr + i[:, None] * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + j[None, :] * K + k[:, None], mask=(j[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    acc += tl.load(b_ptr + j, mask=j < N, other=0.0)[None, :]
    tl.store(y_ptr + i[:, None] * N + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, features, length, window):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.length = length
        self.window = window

    def forward(self, x, table):
        heads, n = table.shape
        s = torch.empty_like(table)
        sigmoids[(triton.cdiv(heads * n, 1024),)](table, s, heads * n, B=1024)
        M, K = x.shape
        y = torch.empty(M, K, device=x.device)
        linear[(triton.cdiv(K, 64), triton.cdiv(M, 64))](
            x, self.linear.weight, self.linear.bias, y, M, K, K, BM=64, BN=64, BK=32
        )
        return y, s.as_strided((heads, self.length, self.window), (n, 1, 1))
