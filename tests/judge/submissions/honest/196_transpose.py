# square tiles are transposed in registers | task: transpose | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def transpose_add(x_ptr, shift_ptr, y_ptr, rows, cols, TILE: tl.constexpr):
    r = tl.program_id(0) * TILE + tl.arange(0, TILE)
    c = tl.program_id(1) * TILE + tl.arange(0, TILE)
    matrix = tl.program_id(2).to(tl.int64) * rows * cols
    tile = tl.load(
        x_ptr + matrix + r[:, None] * cols + c[None, :], mask=(r[:, None] < rows) & (c[None, :] < cols), other=0.0
    )
    shift = tl.load(shift_ptr + r, mask=r < rows, other=0.0)
    flipped = tl.permute(tile, (1, 0)) + shift[None, :]
    tl.store(y_ptr + matrix + c[:, None] * rows + r[None, :], flipped, mask=(c[:, None] < cols) & (r[None, :] < rows))


class ModelNew(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(rows))

    def forward(self, x):
        x = x.contiguous()
        batch, rows, cols = x.shape
        y = torch.empty((batch, cols, rows), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(rows, 32), triton.cdiv(cols, 32), batch)
        transpose_add[grid](x, self.shift, y, rows, cols, TILE=32)
        return y
