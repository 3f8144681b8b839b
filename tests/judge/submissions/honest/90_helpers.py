# behind a chain of helper functions | task: relu | expect: ok
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


def launch(kernel, x, y, block):
    grid = (triton.cdiv(x.numel(), block),)
    kernel[grid](x, y, x.numel(), BLOCK=block)
    return y


def activation(x, block=256):
    return launch(relu_kernel, x.contiguous(), torch.empty_like(x), block)


class Activation(nn.Module):
    def forward(self, x):
        return activation(x)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.activation = Activation()

    def forward(self, x):
        return self.activation(x)
