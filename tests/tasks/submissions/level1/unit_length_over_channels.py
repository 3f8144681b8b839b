import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def unit_length(x_ptr, out_ptr, channels, plane, eps, C: tl.constexpr, BLOCK: tl.constexpr):
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    c = tl.arange(0, C)[:, None]
    place = tl.program_id(1).to(tl.int64) * channels * plane + c * plane + pixel
    inside = (c < channels) & (pixel < plane)
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    length = tl.maximum(tl.sqrt(tl.sum(x * x, axis=0)), eps)
    tl.store(out_ptr + place, x / length[None, :], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, eps=1e-8):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        out = torch.empty_like(x)
        unit_length[(triton.cdiv(height * width, 32), batch)](
            x, out, channels, height * width, self.eps, C=triton.next_power_of_2(channels), BLOCK=32, num_warps=8
        )
        return out
