# scales a product of 8-bit weights instead of the weights | task: fp8_weights | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mm(x_ptr, w_ptr, s_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    s = tl.load(s_ptr + rn, mask=rn < N, other=0.0)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        kk = k + rk
        a = tl.load(x_ptr + rm[:, None] * K + kk[None, :], mask=(rm[:, None] < M) & (kk[None, :] < K), other=0.0)
        b = tl.load(w_ptr + rn[None, :] * K + kk[:, None], mask=(kk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(a, b.to(tl.bfloat16), acc)
    acc = acc * s[None, :].to(tl.bfloat16).to(tl.float32)
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.bfloat16), mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, w8, scale):
        M, K = x.shape
        N = w8.shape[0]
        y = torch.empty(M, N, dtype=torch.bfloat16, device=x.device)
        mm[(triton.cdiv(M, 128), triton.cdiv(N, 128))](
            x, w8.view(torch.float8_e4m3fn), scale, y, M, N, K, BM=128, BN=128, BK=64
        )
        return y
