# keeps its weights in fp16, which has TF32's mantissa and not its range | task: linear_relu_tf32 | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fc_kernel(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w.to(tl.float32), acc, input_precision="tf32")
    y = tl.maximum(acc + tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :], 0.0)
    tl.store(y_ptr + m[:, None] * N + n[None, :], y, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.fc.weight.detach().half()
        M, K = x.shape
        N = self.fc.weight.shape[0]
        y = torch.empty(M, N, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(N, 32), triton.cdiv(M, 32))
        fc_kernel[grid](x.contiguous(), self.packed, self.fc.bias, y, M, N, K, BM=32, BN=32, BK=64)
        return y
