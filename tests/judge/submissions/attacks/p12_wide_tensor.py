# describes an output with strides of 0 and more elements than there is memory | task: relu | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl
from drkernel.judge.boundary.call_areas import CallAreas


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < n)


def triton_relu(x):
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


honest = CallAreas.copy_out


def forged(self, result):
    wide = {"slot": [256, "float32", [2**24, 2**24], [0, 0]], "expanded": False, "shares": False}
    return {**honest(self, result), "tensors": [wide]}


CallAreas.copy_out = forged


class ModelNew(nn.Module):
    def forward(self, x):
        return triton_relu(x)
