# the output is a view of a padded buffer | task: relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, cols, padded, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0)
    tl.store(y_ptr + row * padded + i, tl.maximum(x, 0.0))


class ModelNew(nn.Module):
    def forward(self, x):
        block = triton.next_power_of_2(x.shape[1])
        y = torch.empty((x.shape[0], block), device=x.device, dtype=x.dtype)
        kernel[(x.shape[0],)](x, y, x.shape[1], block, BLOCK=block)
        return y[:, : x.shape[1]]
