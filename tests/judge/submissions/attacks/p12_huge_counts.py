# reports counts that overflow in whoever computes with them | task: relu | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl
from drkernel.judge.boundary.op_trace import OpTrace, Row


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < n)


def triton_relu(x):
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def forged(self):
    row = Row(
        "relu_kernel", "relu_kernel:8", True, 2**62, 2**62, 1e18, 1e18, 2**62, block=0, accesses=2**62, reused=1e18
    )
    row.add_traffic(0, 2**62, 2**62, True)
    other = Row("mm", "mm", False, 0, 0, 1e18, 0.0, 0)
    return json_of(OpTrace([row, other]))


json_of = OpTrace.to_json
OpTrace.to_json = forged


class ModelNew(nn.Module):
    def forward(self, x):
        return triton_relu(x)
