# batch normalisation for inference | task: batch_norm | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, m_ptr, v_ptr, w_ptr, b_ptr, y_ptr, n, size, features, eps, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = (i // size) % features
    x = tl.load(x_ptr + i, mask=i < n)
    scale = tl.load(w_ptr + c) * tl.rsqrt(tl.load(v_ptr + c) + eps)
    y = (x - tl.load(m_ptr + c)) * scale + tl.load(b_ptr + c)
    tl.store(y_ptr + i, tl.maximum(y, 0.0), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm2d(features)

    def forward(self, x):
        y = torch.empty_like(x)
        n, norm = x.numel(), self.norm
        grid = (triton.cdiv(n, 512),)
        size = x.shape[2] * x.shape[3]
        kernel[grid](
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, y, n, size, x.shape[1], norm.eps, BLOCK=512
        )
        return y
