import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def min_swish_subtract(x_ptr, constant_ptr, subtract_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < cols
    x = tl.minimum(tl.load(x_ptr + row + i, mask=inside), tl.load(constant_ptr))
    x = x * tl.sigmoid(x) - tl.load(subtract_ptr + i, mask=inside)
    tl.store(x_ptr + row + i, x, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, constant):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.constant = nn.Parameter(torch.tensor(constant))
        self.subtract = nn.Parameter(torch.rand(out_features))

    def forward(self, x):
        x = self.linear(x)
        rows, cols = x.shape
        min_swish_subtract[(rows, triton.cdiv(cols, 1024))](x, self.constant, self.subtract, cols, BLOCK=1024)
        return x
