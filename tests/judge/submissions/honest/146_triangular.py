# lower triangular factors: sums run over what is not zero | task: triangular_matmul | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tril_matmul_kernel(A, B, C, N, BLOCK: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    m = pid_m * BLOCK + tl.arange(0, BLOCK)
    n = pid_n * BLOCK + tl.arange(0, BLOCK)
    inside = (m[:, None] < N) & (n[None, :] < N)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    if pid_m >= pid_n:
        # A[m, k] is zero for k > m, B[k, n] for k < n.
        for start in range(pid_n * BLOCK, (pid_m + 1) * BLOCK, BLOCK):
            k = start + tl.arange(0, BLOCK)
            a = tl.load(A + m[:, None] * N + k[None, :], mask=(m[:, None] < N) & (k[None, :] < N), other=0.0)
            b = tl.load(B + k[:, None] * N + n[None, :], mask=(k[:, None] < N) & (n[None, :] < N), other=0.0)
            acc += tl.dot(a, b, input_precision="ieee")
        acc = tl.where(m[:, None] >= n[None, :], acc, 0.0)
    tl.store(C + m[:, None] * N + n[None, :], acc, mask=inside)


class ModelNew(nn.Module):
    """C = tril(A @ B) for lower triangular A and B."""

    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        N = A.shape[0]
        C = torch.empty_like(A)
        blocks = triton.cdiv(N, 32)
        tril_matmul_kernel[(blocks, blocks)](A, B, C, N, BLOCK=32)
        return C
