# a kernel without masks for whole blocks of rows, and another for the rows that remain | task: tall_matmul | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def main_kernel(a, b, c, N: tl.constexpr, ROWS: tl.constexpr):
    """Whole blocks; N is a power of two."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, N)
    x = tl.load(a + rows[:, None] * N + cols[None, :])
    y = tl.load(b + cols[:, None] * N + cols[None, :])
    tl.store(c + rows[:, None] * N + cols[None, :], tl.dot(x, y, input_precision="tf32x3"))


@triton.jit
def tail_kernel(a, b, c, start, M, N, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Rows from start on, in any number and of any width."""
    rows = start + tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, WIDTH)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    x = tl.load(a + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    y = tl.load(b + cols[:, None] * N + cols[None, :], mask=(cols[:, None] < N) & (cols[None, :] < N), other=0.0)
    tl.store(c + rows[:, None] * N + cols[None, :], tl.dot(x, y, input_precision="tf32x3"), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, rows=128):
        super().__init__()
        self.rows = rows

    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        M, N = A.shape
        C = torch.empty_like(A)
        width = max(16, triton.next_power_of_2(N))
        blocks = M // self.rows if width == N else 0
        if blocks:
            main_kernel[(blocks,)](A, B, C, N=N, ROWS=self.rows)
        done = blocks * self.rows
        if done < M:
            tail_kernel[(triton.cdiv(M - done, 16),)](A, B, C, done, M, N, WIDTH=width, ROWS=16)
        return C
