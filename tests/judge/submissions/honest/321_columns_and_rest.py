# the sum over whole blocks of columns, and a kernel that adds the rest | task: row_mean | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def whole_blocks(x_ptr, sum_ptr, cols, blocks, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for block in range(blocks):
        total += tl.load(x_ptr + row * cols + block * BLOCK + tl.arange(0, BLOCK))
    tl.store(sum_ptr + row, tl.sum(total))


@triton.jit
def add_rest(x_ptr, sum_ptr, cols, start, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = start + tl.arange(0, BLOCK)
    rest = tl.sum(tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0))
    tl.store(sum_ptr + row, tl.load(sum_ptr + row) + rest)


@triton.jit
def divide(sum_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(sum_ptr + i, mask=i < rows) / cols, mask=i < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        (rows, cols), x = x.shape, x.contiguous()
        sums = torch.empty(rows, device=x.device)
        y = torch.empty_like(sums)
        whole_blocks[(rows,)](x, sums, cols, cols // 16, BLOCK=16)
        add_rest[(rows,)](x, sums, cols, cols // 16 * 16, BLOCK=16)
        divide[(triton.cdiv(rows, 256),)](sums, y, rows, cols, BLOCK=256)
        return y
