import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def channel_norm_gelu(x_ptr, gain_ptr, bias_ptr, channels, plane, eps, factor, C: tl.constexpr, BLOCK: tl.constexpr):
    image = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    c = tl.arange(0, C)[:, None]
    inside = (c < channels) & (pixel < plane)
    place = x_ptr + image * channels * plane + c * plane + pixel
    x = tl.load(place, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / channels
    x = tl.where(inside, x - mean[None, :], 0.0)
    scale = 1 / tl.sqrt(tl.sum(x * x, axis=0) / channels + eps)
    gain = tl.load(gain_ptr + c, mask=c < channels, other=0.0)
    bias = tl.load(bias_ptr + c, mask=c < channels, other=0.0)
    y = x * scale[None, :] * gain + bias
    y = 0.5 * y * (1 + tl.erf(y * 0.7071067811865476))
    tl.store(place, factor * y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, dilation, scaling_factor):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=dilation, dilation=dilation)
        self.layer_norm = nn.LayerNorm(out_channels)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = self.conv(x).contiguous()
        batch, channels, height, width = x.shape
        plane, norm = height * width, self.layer_norm
        channel_norm_gelu[(triton.cdiv(plane, 64), batch)](
            x, norm.weight, norm.bias, channels, plane, norm.eps, self.scaling_factor,
            C=triton.next_power_of_2(channels), BLOCK=64,
        )  # fmt: skip
        return x
