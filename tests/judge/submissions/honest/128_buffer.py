# a workspace that is a buffer outside of the state dict | task: mean_centre | expect: ok
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
        self.register_buffer("workspace", torch.empty(1 << 16), persistent=False)

    def forward(self, x):
        rows, cols = x.shape
        workspace = self.workspace.to(x.device)
        y = torch.empty_like(x)
        block = triton.next_power_of_2(cols)
        means[(rows,)](x, workspace, cols, BLOCK=block)
        centre[(rows,)](x, workspace, y, cols, BLOCK=block)
        return y
