# a symmetric factor is read by columns, which are its rows | task: symmetric_matmul | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BM": 64, "BN": 64, "BK": 16}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BN": 64, "BK": 16}, num_warps=8, num_stages=3),
        triton.Config({"BM": 64, "BN": 128, "BK": 32}, num_warps=8, num_stages=2),
    ],
    key=["N"],
)
@triton.jit
def symm(a_ptr, b_ptr, c_ptr, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A[m, k] is taken from A[k, m]: neighbours in m are neighbours in memory."""
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, N, BK):
        k = start + tl.arange(0, BK)
        row = k[:, None] * N
        at = tl.load(a_ptr + row + m[None, :], mask=(k[:, None] < N) & (m[None, :] < N), other=0.0)
        b = tl.load(b_ptr + row + n[None, :], mask=(k[:, None] < N) & (n[None, :] < N), other=0.0)
        acc = tl.dot(tl.trans(at), b, acc, input_precision="tf32x3")
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < N) & (n[None, :] < N))


def symmetric_product(a, b):
    n = a.size(0)
    c = torch.empty_like(b)
    symm[lambda meta: (triton.cdiv(n, meta["BN"]), triton.cdiv(n, meta["BM"]))](a, b, c, n)
    return c


class ModelNew(nn.Module):
    def forward(self, A, B):
        return symmetric_product(A.contiguous(), B.contiguous())
