# the input that the reference updates in place is updated | task: momentum | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def momentum_kernel(m_ptr, g_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        i = start + tl.arange(0, BLOCK)
        momentum = tl.load(m_ptr + row * cols + i, mask=i < cols, other=0.0)
        momentum = 0.9 * momentum + tl.load(g_ptr + row * cols + i, mask=i < cols, other=0.0)
        acc += momentum * momentum
        tl.store(m_ptr + row * cols + i, momentum, mask=i < cols)
    tl.store(y_ptr + row, tl.sum(acc))


class ModelNew(nn.Module):
    def forward(self, momentum, gradient):
        rows, cols = momentum.shape
        y = torch.empty(rows, device=momentum.device, dtype=momentum.dtype)
        momentum_kernel[(rows,)](momentum, gradient.contiguous(), y, cols, BLOCK=1024)
        return y
