import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def shuffle_clamp(x_ptr, out_ptr, height, width, factor, UP: tl.constexpr, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)  # of an image and a channel of the output
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    size = height * width * UP * UP
    row, col = i // (width * UP), i % (width * UP)
    source = (row % UP * UP + col % UP) * height * width + row // UP * width + col // UP
    x = factor * tl.load(x_ptr + plane * size + source, mask=i < size) + 0.5
    tl.store(out_ptr + plane * size + i, tl.minimum(tl.maximum(x, 0.0), 1.0), mask=i < size)


class ModelNew(nn.Module):
    def __init__(self, in_channels, image_channels, upscale, brightness):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, image_channels * upscale**2, kernel_size=3, padding=1)
        self.upscale = upscale
        self.brightness = brightness

    def forward(self, x):
        x = self.conv(x).contiguous()
        batch, channels, height, width = x.shape
        up = self.upscale
        out = torch.empty(batch, channels // up**2, height * up, width * up, device=x.device, dtype=x.dtype)
        size = height * width * up**2
        shuffle_clamp[(batch * out.shape[1], triton.cdiv(size, 1024))](
            x, out, height, width, self.brightness, UP=up, BLOCK=1024
        )
        return out
