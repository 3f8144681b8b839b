# matrix by vector in functional style, an fp32 vector of partial sums per row | task: matrix_vector | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gemv_kernel(matrix, vector, result, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    partial = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    base = matrix + r[:, None].to(tl.int64) * columns
    for start in range(0, columns, COLUMNS):
        c = start + tl.arange(0, COLUMNS)
        tile = tl.load(base + c[None, :], mask=(r[:, None] < rows) & (c[None, :] < columns), other=0.0)
        x = tl.load(vector + c, mask=c < columns, other=0.0)
        partial += tile * x[None, :]
    tl.store(result + r, tl.sum(partial, axis=1), mask=r < rows)


def gemv(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    rows, columns = matrix.shape
    result = matrix.new_empty((rows, 1))
    gemv_kernel[(triton.cdiv(rows, 4),)](matrix, vector, result, rows, columns, ROWS=4, COLUMNS=512, num_warps=4)
    return result


class ModelNew(nn.Module):
    forward = staticmethod(lambda A, x: gemv(A.contiguous(), x.contiguous()))
