# a kernel that hangs after some honest calls | task: relu | expect: invalid timeout
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


calls = []


@triton.jit
def wait_kernel(flag_ptr, y_ptr):
    spins = 0
    while tl.load(flag_ptr, volatile=True) == 0.0:
        spins += 1
    tl.store(y_ptr, spins)


class ModelNew(nn.Module):
    def forward(self, x):
        y = triton_relu(x)
        calls.append(1)
        if len(calls) > 8:
            wait_kernel[(1,)](torch.zeros(1, device=x.device), y)
        return y
