# a first stage adds the squares of an incomplete last block, if there is one | task: l2_normalize | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tail_squares(x_ptr, squares_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = (cols // BLOCK) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0)
    tail = tl.sum(x * x, axis=0)
    tl.store(squares_ptr + row, tail, mask=cols % BLOCK != 0)


@triton.jit
def normalize(x_ptr, squares_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * cols
    y_ptr += row * cols
    whole = cols // BLOCK
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for b in range(whole):
        x = tl.load(x_ptr + b * BLOCK + tl.arange(0, BLOCK))
        acc += x * x
    norm = tl.sqrt(tl.sum(acc, axis=0) + tl.load(squares_ptr + row))
    for b in range(tl.cdiv(cols, BLOCK)):
        i = b * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < cols) / norm, mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        x = x.contiguous()
        squares = torch.zeros(rows, device=x.device, dtype=torch.float32)
        tail_squares[(rows,)](x, squares, cols, BLOCK=1024)
        y = torch.empty_like(x)
        normalize[(rows,)](x, squares, y, cols, BLOCK=1024)
        return y
