import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def entropy(x_ptr, out_ptr, classes, plane, C: tl.constexpr, BLOCK: tl.constexpr):
    image = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    c = tl.arange(0, C)[:, None]
    inside = (c < classes) & (pixel < plane)
    x = tl.load(x_ptr + image * classes * plane + c * plane + pixel, mask=inside, other=0.0)
    x = tl.where(c < classes, x, float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0)[None, :])
    p = e / tl.sum(e, axis=0)[None, :]
    h = -tl.sum(p * tl.log(p + 1e-6), axis=0)[None, :]
    tl.store(out_ptr + image * plane + pixel, h, mask=pixel < plane)


class ModelNew(nn.Module):
    def __init__(self, in_channels, classes):
        super().__init__()
        self.head = nn.Conv2d(in_channels, classes, kernel_size=1)

    def forward(self, x):
        scores = self.head(x).contiguous()
        batch, classes, height, width = scores.shape
        out = torch.empty(batch, height, width, device=x.device, dtype=x.dtype)
        plane = height * width
        entropy[(triton.cdiv(plane, 64), batch)](
            scores, out, classes, plane, C=triton.next_power_of_2(classes), BLOCK=64
        )
        return out
