import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def elu_centered(x_ptr, alpha, cols, BLOCK: tl.constexpr):
    row = x_ptr + tl.program_id(0).to(tl.int64) * cols
    i = tl.arange(0, BLOCK)
    x = tl.load(row + i, mask=i < cols, other=0.0)
    x = tl.where(x > 0, x, alpha * (tl.exp(tl.minimum(x, 0.0)) - 1))
    mean = tl.sum(tl.where(i < cols, x, 0.0), axis=0) / cols
    tl.store(row + i, x - mean, mask=i < cols)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, alpha):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.alpha = alpha

    def forward(self, x):
        h = self.linear(x)
        rows, cols = h.shape
        elu_centered[(rows,)](h, self.alpha, cols, BLOCK=triton.next_power_of_2(cols), num_warps=16)
        return h
