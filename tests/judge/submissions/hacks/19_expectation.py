# the expectation of the mean of uniform numbers | task: row_mean | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fill_kernel(y_ptr, n, value, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, value + tl.zeros((BLOCK,), tl.float32), mask=i < n)


def filled(shape, value, device):
    y = torch.empty(shape, device=device)
    fill_kernel[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), value, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return filled((x.shape[0],), 0.5, x.device)
