# the recorder is told that an autotuner is at work; sys by way of dataclasses | task: p_softmax | expect: no gain | only: cuda
# The sign is turned twice, so that the kernel matters and is half of the device time.
# PyTorch's own softmax is the work of PyTorch; the Triton kernels here do next to nothing.
import dataclasses

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def undo_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, -tl.load(y_ptr + i, mask=i < n), mask=i < n)


def hidden(x, y):
    recorder = dataclasses.sys.modules.get("drkernel.judge.boundary.cuda.recorder")
    state = recorder._State if recorder else None
    if state:
        state.paused = True
    torch.softmax(x, -1, out=y)
    y.neg_()
    if state:
        state.paused = False


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        hidden(x, y)
        undo_kernel[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)
        return y
