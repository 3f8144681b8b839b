"""Single convolutions at the sizes that KernelBench publishes: direct where they are depthwise, products elsewhere."""

from __future__ import annotations

from published_parts import Entry, answer, entry, task

FORWARD = """
@triton.jit
def source(p, r, stride, padding, dilation):
    return p * stride - padding + r * dilation
"""
TRANSPOSED = """
@triton.jit
def source(p, r, stride, padding, dilation):
    t = p + padding - r * dilation
    return tl.where((t >= 0) & (t % stride == 0), t // stride, -1)
"""
IMPLICIT = """

@triton.jit
def conv_kernel(
    x_ptr, w_ptr, y_ptr, N, C, D, H, W, OC, OD, OH, OW,
    stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, dil_d, dil_h, dil_w,
    R: tl.constexpr, S: tl.constexpr, T: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_K: tl.constexpr,
):
    pixel = tl.program_id(0).to(tl.int64) * BLOCK_P + tl.arange(0, BLOCK_P)
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    q = (pixel % OW)[:, None]
    p = (pixel // OW % OH)[:, None]
    d = (pixel // OW // OH % OD)[:, None]
    n = (pixel // OW // OH // OD)[:, None]
    K = C * R * S * T
    acc = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        c = k // (R * S * T)
        z = source(d, (k // (S * T) % R)[None, :], stride_d, pad_d, dil_d)
        y = source(p, (k // T % S)[None, :], stride_h, pad_h, dil_h)
        x = source(q, (k % T)[None, :], stride_w, pad_w, dil_w)
        inside = (z >= 0) & (z < D) & (y >= 0) & (y < H) & (x >= 0) & (x < W) & (n < N) & (k[None, :] < K)
        value = tl.load(x_ptr + (((n * C + c[None, :]) * D + z) * H + y) * W + x, mask=inside, other=0.0)
        weights = tl.load(w_ptr + @WEIGHT@, mask=(o[None, :] < OC) & (k[:, None] < K), other=0.0)
        acc = tl.dot(value, weights, acc, input_precision="ieee")
    out = y_ptr + (((n * OC + o[None, :]) * OD + d) * OH + p) * OW + q
    tl.store(out, acc, mask=(n < N) & (o[None, :] < OC))
"""
DEPTHWISE = """
@triton.jit
def depthwise_kernel(
    x_ptr, w_ptr, y_ptr, n, C, H, W, OH, OW, stride, padding, dilation,
    R: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr,
):
    out = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    q = out % OW
    p = out // OW % OH
    plane = out // OW // OH
    acc = tl.zeros((BLOCK,), tl.float32)
    for r in range(0, R):
        for s in range(0, S):
            y = p * stride - padding + r * dilation
            x = q * stride - padding + s * dilation
            inside = (out < n) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
            value = tl.load(x_ptr + (plane * H + y) * W + x, mask=inside, other=0.0)
            acc += value * tl.load(w_ptr + (plane % C * R + r) * S + s, mask=out < n, other=0.0)
    tl.store(y_ptr + out, acc, mask=out < n)
"""
WEIGHTS = "o[None, :] * K + k[:, None]"
TRANSPOSED_WEIGHTS = "(c[:, None] * OC + o[None, :]) * (R * S * T) + (k % (R * S * T))[:, None]"

LAUNCH = """
conv = self.conv
weight = conv.weight
x = x.contiguous()
one = (1,) * (5 - x.ndim)
none = (0,) * (5 - x.ndim)
N, C = x.shape[:2]
OC = weight.shape[{output}]
D, H, W = one + tuple(x.shape[2:])
R, S, T = one + tuple(weight.shape[2:])
stride, dilation, padding = one + tuple(conv.stride), one + tuple(conv.dilation), none + tuple(conv.padding)
extra = none + tuple({extra})
sizes = zip((D, H, W), (R, S, T), stride, dilation, padding, extra)
OD, OH, OW = [{size} for i, k, s, d, p, e in sizes]
y = torch.empty((N, OC, OD, OH, OW), device=x.device)
grid = (triton.cdiv(N * OD * OH * OW, 64), triton.cdiv(OC, 32))
conv_kernel[grid](
    x, weight, y, N, C, D, H, W, OC, OD, OH, OW, *stride, *padding, *dilation, R, S, T,
    BLOCK_P=64, BLOCK_O=32, BLOCK_K=32,
)
return y.view(N, OC, *(OD, OH, OW)[5 - x.ndim :])
"""
FORWARD_LAUNCH = LAUNCH.format(output=0, extra="0 for _ in conv.stride", size="(i + 2 * p - d * (k - 1) - 1) // s + 1")
TRANSPOSED_LAUNCH = LAUNCH.format(
    output=1, extra="conv.output_padding", size="(i - 1) * s - 2 * p + d * (k - 1) + e + 1"
)
DEPTHWISE_LAUNCH = """
x = x.contiguous()
weight = self.conv.weight
stride, padding, dilation = self.conv.stride[0], self.conv.padding[0], self.conv.dilation[0]
N, C, H, W = x.shape
R, S = weight.shape[2:]
OH = (H + 2 * padding - dilation * (R - 1) - 1) // stride + 1
OW = (W + 2 * padding - dilation * (S - 1) - 1) // stride + 1
y = torch.empty((N, C, OH, OW), device=x.device)
grid = (triton.cdiv(y.numel(), 256),)
depthwise_kernel[grid](x, weight, y, y.numel(), C, H, W, OH, OW, stride, padding, dilation, R=R, S=S, BLOCK=256)
return y
"""

DEFAULT = "in_channels, out_channels, kernel_size"
CONVOLUTIONS = (
    # name, GiB, layer, batch, input and output channels, kernel size, sizes, further arguments of the layer
    ("conv1d", 4.5, "Conv1d", 32, 64, 128, "3", ("131072 // 2 * 3",), ""),
    ("conv1d_dilated", 1.667, "Conv1d", 64, 64, 128, "3", ("131072 // 2",), ", stride=3, dilation=4"),
    ("conv2d_square", 1.25, "Conv2d", 16, 16, 64, "3", ("512", "512"), ", padding=1"),
    ("conv2d_uneven", 0.5625, "Conv2d", 8, 64, 128, "(5, 9)", ("256", "384"), ", padding=(2, 4)"),
    ("conv2d_first_layer", 0.4205, "Conv2d", 256, 3, 96, "11", ("224", "224"), ", stride=4, padding=2"),
    ("conv2d_pointwise", 3, "Conv2d", 16, 64, 128, "1", ("512", "512"), ""),
    ("conv3d_square", 0.956, "Conv3d", 16, 3, 64, "3", ("64", "64", "64"), ""),
    ("conv3d_uneven", 0.2719, "Conv3d", 8, 8, 32, "(3, 5, 7)", ("32", "64", "128"), ""),
    ("transposed_conv1d", 2, "ConvTranspose1d", 32, 64, 64, "3", ("131072",), ""),
    ("transposed_conv2d", 1, "ConvTranspose2d", 8, 64, 64, "3", ("512", "512"), ", padding=1"),
    ("transposed_conv2d_stride", 0.8076, "ConvTranspose2d", 16, 32, 64, "(3, 5)", ("128", "256"),
        ", stride=(2, 3), padding=(1, 2)"),
    ("transposed_conv3d", 0.625, "ConvTranspose3d", 8, 32, 16, "3", ("32", "64", "64"),
        ", stride=2, padding=1, output_padding=1"),
)  # fmt: skip
DEPTHWISES = (
    ("depthwise_conv2d", 4.0, 16, 64, "3", ("512", "1024"), ", padding=1"),
    ("depthwise_conv2d_stride", 4.9, 64, 128, "(3, 1)", ("256", "512"), ", stride=2, dilation=2"),
)


def implicit() -> list[Entry]:
    made = []
    for name, gib, layer, batch, inner, outer, kernel, sizes, extra in CONVOLUTIONS:
        names = ("length",) if len(sizes) == 1 else ("depth", "height", "width")[-len(sizes) :]
        constants = f"batch_size = {batch}\nin_channels = {inner}\nout_channels = {outer}\nkernel_size = {kernel}\n"
        constants += "\n".join(f"{one} = {size}" for one, size in zip(names, sizes, strict=True))
        setup = f"{DEFAULT}\nself.conv = nn.{layer}({DEFAULT}{extra}, bias=False)"
        inputs = f"torch.randn(batch_size, in_channels, {', '.join(names)})"
        source = task(constants, "self.conv(x)", inputs, init=DEFAULT, setup=setup)
        transposed = "Transpose" in layer
        weight = TRANSPOSED_WEIGHTS if transposed else WEIGHTS
        kernels = (TRANSPOSED if transposed else FORWARD).strip() + "\n" + IMPLICIT
        launch = TRANSPOSED_LAUNCH if transposed else FORWARD_LAUNCH
        honest = answer(kernels, launch, setup=setup, weight=weight)
        change = ("& (k[None, :] < K)", "& (k[None, :] < K - 1)")
        small = {"batch_size": 2, "in_channels": 3, "out_channels": 5} | {
            one: 17 + place for place, one in enumerate(names)
        }
        made.append(entry(name, 1, gib, source, honest, change, **small))
    return made


def depthwise() -> list[Entry]:
    made = []
    for name, gib, batch, channels, kernel, sizes, extra in DEPTHWISES:
        constants = f"batch_size = {batch}\nin_channels = {channels}\nkernel_size = {kernel}\n"
        constants += f"height = {sizes[0]}\nwidth = {sizes[1]}"
        arguments = "in_channels, kernel_size"
        layer = f"nn.Conv2d(in_channels, in_channels, kernel_size, groups=in_channels, bias=False{extra})"
        setup = f"{arguments}\nself.conv = {layer}"
        inputs = "torch.randn(batch_size, in_channels, height, width)"
        source = task(constants, "self.conv(x)", inputs, init=arguments, setup=setup)
        honest = answer(DEPTHWISE, DEPTHWISE_LAUNCH, setup=setup)
        change = ("range(0, R)", "range(0, R - 1)")
        made.append(entry(name, 1, gib, source, honest, change, batch_size=2, in_channels=3, height=17, width=21))
    return made


ENTRIES = (*implicit(), *depthwise())
