# max pooling with unrolled windows, padding by masks | task: max_pool2d | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_pool2d_kernel(
    x_ptr, y_ptr, total, H, W, OH, OW,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    idx = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = idx < total
    ow = idx % OW
    oh = (idx // OW) % OH
    plane = idx // (OW * OH)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for kh in tl.static_range(KERNEL):
        for kw in tl.static_range(KERNEL):
            h = oh * STRIDE - PADDING + kh
            w = ow * STRIDE - PADDING + kw
            ok = live & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            best = tl.maximum(best, tl.load(x_ptr + (plane * H + h) * W + w, mask=ok, other=float("-inf")))
    tl.store(y_ptr + idx, best, mask=live)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        out = lambda size: (size + 2 * self.padding - self.kernel_size) // self.stride + 1
        y = torch.empty((n, c, out(h), out(w)), device=x.device, dtype=x.dtype)
        total = y.numel()
        max_pool2d_kernel[(triton.cdiv(total, 256),)](
            x, y, total, h, w, out(h), out(w),
            KERNEL=self.kernel_size, STRIDE=self.stride, PADDING=self.padding, BLOCK=256,
        )  # fmt: skip
        return y
