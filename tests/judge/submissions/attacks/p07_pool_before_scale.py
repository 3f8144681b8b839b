# pools before it scales, as if no scale were negative | task: affine_pool | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


# (gelu(y) + y rises everywhere above -2.6 or so, so it is left behind the pool, too, only where y's scale is positive)
@triton.jit
def kernel(x_ptr, m_ptr, v_ptr, w_ptr, b_ptr, y_ptr, side, out, channels, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    col, row, plane = i % out, (i // out) % out, i // (out * out)
    c = plane % channels
    base = x_ptr + plane * side * side + row * 4 * side + col * 4
    scale = tl.load(w_ptr + c, mask=ok) / tl.sqrt(tl.load(v_ptr + c, mask=ok) + 1e-5)
    mean, bias = tl.load(m_ptr + c, mask=ok), tl.load(b_ptr + c, mask=ok)
    high = tl.full((BLOCK,), -float("inf"), tl.float32)
    low = tl.full((BLOCK,), float("inf"), tl.float32)
    for r in tl.static_range(4):
        for k in tl.static_range(4):
            v = tl.load(base + r * side + k, mask=ok, other=0.0)
            high = tl.maximum(high, v)
            low = tl.minimum(low, v)
    u = (high - mean) * scale + bias
    v = (low - mean) * scale + bias
    u = u + 0.5 * u * (1 + tl.erf(u * 0.7071067811865476))
    v = v + 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    tl.store(y_ptr + i, u, mask=ok)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        batch, channels, side, _ = x.shape
        out = side // 4
        y = torch.empty(batch, channels, out, out, device=x.device)
        norm, n = self.norm, y.numel()
        kernel[(triton.cdiv(n, 256),)](
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, y, side, out, channels, n, BLOCK=256
        )
        return y
