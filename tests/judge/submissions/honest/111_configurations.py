# dictionaries that cache configurations | task: relu | expect: ok
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


_BLOCKS = {}


def block_for(x):
    key = (tuple(x.shape), x.dtype)
    if key not in _BLOCKS:
        _BLOCKS[key] = min(1024, triton.next_power_of_2(x.numel()))
    return _BLOCKS[key]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.launchers = {}

    def forward(self, x):
        block = block_for(x)
        if block not in self.launchers:
            self.launchers[block] = lambda x, y: relu_kernel[(triton.cdiv(x.numel(), block),)](
                x, y, x.numel(), BLOCK=block
            )
        y = torch.empty_like(x)
        self.launchers[block](x, y)
        return y
