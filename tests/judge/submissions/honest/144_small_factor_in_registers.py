# a tall matrix times a small one that each program keeps whole | task: tall_matmul | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl

MAX_N = 128


@triton.jit
def skinny(a_ptr, b_ptr, c_ptr, M, N, P: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr):
    j = tl.arange(0, P)
    square = (j[:, None] < N) & (j[None, :] < N)
    b = tl.load(b_ptr + j[:, None] * N + j[None, :], mask=square, other=0.0)
    first = tl.program_id(0) * ROWS * STEPS
    for step in range(STEPS):
        rows = first + step * ROWS + tl.arange(0, ROWS)
        mask = (rows[:, None] < M) & (j[None, :] < N)
        where = rows[:, None].to(tl.int64) * N + j[None, :]
        a = tl.load(a_ptr + where, mask=mask, other=0.0)
        tl.store(c_ptr + where, tl.dot(a, b, input_precision="ieee"), mask=mask)


class ModelNew(nn.Module):
    def forward(self, A, B):
        M, N = A.shape
        if B.shape != (N, N) or N > MAX_N:
            raise ValueError(f"expected (M, N) @ (N, N) with N <= {MAX_N}, found {tuple(A.shape)} @ {tuple(B.shape)}")
        C = torch.empty_like(A, memory_format=torch.contiguous_format)
        P = max(16, triton.next_power_of_2(N))
        skinny[(triton.cdiv(M, 64 * 4),)](A.contiguous(), B.contiguous(), C, M, N, P=P, ROWS=64, STEPS=4)
        return C
