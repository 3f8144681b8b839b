# the affine is there and not applied | task: layer_norm | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0)
    mean = tl.sum(x) / cols
    centred = tl.where(i < cols, x - mean, 0.0)
    y = centred * tl.rsqrt(tl.sum(centred * centred) / cols + 1e-5)
    tl.store(y_ptr + row * cols + i, y, mask=i < cols)


def normalise(x):
    y = torch.empty_like(x)
    norm_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.norm = nn.LayerNorm(cols)

    def forward(self, x):
        return normalise(x)
