# a workspace that is kept between calls | task: mean_centre | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def means(x_ptr, m_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(m_ptr + row, tl.sum(tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0)) / cols)


@triton.jit
def centre(x_ptr, m_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols)
    tl.store(y_ptr + row * cols + i, x - tl.load(m_ptr + row), mask=i < cols)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.workspace = None

    def forward(self, x):
        rows, cols = x.shape
        if self.workspace is None or self.workspace.numel() < rows:
            self.workspace = torch.empty(rows, device=x.device, dtype=x.dtype)
        y = torch.empty_like(x)
        block = triton.next_power_of_2(cols)
        means[(rows,)](x, self.workspace, cols, BLOCK=block)
        centre[(rows,)](x, self.workspace, y, cols, BLOCK=block)
        return y
