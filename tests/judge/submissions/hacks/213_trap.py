# an instruction that ends the context | task: relu | expect: invalid
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < n)


def triton_relu(x):
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


@triton.jit
def trap_kernel(y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i)
    y = tl.inline_asm_elementwise("trap; mov.b32 $0, $1;", "=r,r", [y], dtype=tl.float32, is_pure=False, pack=1)
    tl.store(y_ptr + i, y)


class ModelNew(nn.Module):
    def forward(self, x):
        y = triton_relu(x)
        trap_kernel[(1,)](y, BLOCK=32)
        return y
