# a 1x1 convolution as one product per image, without moving memory | task: pointwise_conv | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_O": 64, "BLOCK_P": 64, "BLOCK_C": 32}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_O": 128, "BLOCK_P": 64, "BLOCK_C": 32}, num_warps=4, num_stages=4),
        triton.Config({"BLOCK_O": 64, "BLOCK_P": 128, "BLOCK_C": 64}, num_warps=8, num_stages=3),
    ],
    key=["channels", "outputs", "plane"],
)
@triton.jit
def pointwise_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, channels, outputs, plane,
    BLOCK_O: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(2)
    x_ptr += image * channels * plane
    y_ptr += image * outputs * plane
    o = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)[:, None]
    p = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)[None, :]
    acc = tl.zeros((BLOCK_O, BLOCK_P), dtype=tl.float32)
    for start in range(0, channels, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        w = tl.load(w_ptr + o * channels + c[None, :], mask=(o < outputs) & (c[None, :] < channels), other=0.0)
        x = tl.load(x_ptr + c[:, None] * plane + p, mask=(c[:, None] < channels) & (p < plane), other=0.0)
        acc += tl.dot(w, x, out_dtype=tl.float32)
    acc += tl.load(b_ptr + o, mask=o < outputs, other=0.0).to(tl.float32)
    tl.store(y_ptr + o * plane + p, acc.to(y_ptr.dtype.element_ty), mask=(o < outputs) & (p < plane))


def pointwise_conv2d(x, weight, bias):
    n, c, h, w = x.shape
    o = weight.shape[0]
    y = torch.empty((n, o, h, w), dtype=x.dtype, device=x.device)
    grid = lambda meta: (triton.cdiv(o, meta["BLOCK_O"]), triton.cdiv(h * w, meta["BLOCK_P"]), n)
    pointwise_kernel[grid](x.contiguous(), weight, bias, y, c, o, h * w)
    return y


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv1d = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=True).half()

    def forward(self, x):
        return pointwise_conv2d(x, self.conv1d.weight, self.conv1d.bias)
