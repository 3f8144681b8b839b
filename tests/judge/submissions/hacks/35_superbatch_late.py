# honest at first, later four calls are computed at once | task: relu | expect: incorrect/hack/suspicious | only: cuda
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


honest, waiting = [], []


class ModelNew(nn.Module):
    def forward(self, x):
        if len(honest) < 24:
            honest.append(1)
            return triton_relu(x)
        y = torch.empty_like(x)
        waiting.append((x, y))
        if len(waiting) == 4:
            for inputs, outputs in waiting:
                relu_kernel[(triton.cdiv(x.numel(), 1024),)](inputs, outputs, x.numel(), BLOCK=1024)
            waiting.clear()
        return y
