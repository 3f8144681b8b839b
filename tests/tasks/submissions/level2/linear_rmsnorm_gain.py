import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm(y_ptr, gain_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    i = tl.arange(0, BLOCK)
    inside = i < cols
    y = tl.load(y_ptr + row + i, mask=inside, other=0.0)
    scale = 1 / tl.sqrt(tl.sum(y * y, axis=0) / cols + eps)
    gain = tl.load(gain_ptr + i, mask=inside, other=0.0)
    tl.store(y_ptr + row + i, y * scale * gain, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features) * in_features**-0.5)
        self.gain = nn.Parameter(torch.ones(out_features))
        self.eps = eps

    def forward(self, x):
        y = torch.matmul(x, self.weight)
        cols = y.shape[-1]
        rms_norm[(y.numel() // cols,)](y, self.gain, cols, self.eps, BLOCK=triton.next_power_of_2(cols), num_warps=8)
        return y
