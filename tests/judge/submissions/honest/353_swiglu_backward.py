# both halves of a gate's gradient in one pass | task: backward_swiglu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, g_ptr, o_ptr, n, W, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    row = i // W
    at = row * 2 * W + i % W
    gate = tl.load(x_ptr + at, mask=m, other=0.0).to(tl.float32)
    value = tl.load(x_ptr + at + W, mask=m, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + i, mask=m, other=0.0).to(tl.float32)
    s = tl.sigmoid(gate)
    tl.store(o_ptr + at + W, g * gate * s, mask=m)
    tl.store(o_ptr + at, g * value * s * (1.0 + gate * (1.0 - s)), mask=m)


class ModelNew(nn.Module):
    def forward(self, x, grad_output):
        x, g = x.contiguous(), grad_output.contiguous()
        out = torch.empty_like(x)
        kernel[(triton.cdiv(g.numel(), 1024),)](x, g, out, g.numel(), g.shape[-1], BLOCK=1024)
        return out
