import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def clamp_below_maximum(x_ptr, cols, low, high, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    i = tl.arange(0, BLOCK)
    inside = i < cols
    x = tl.load(x_ptr + row + i, mask=inside, other=float("-inf"))
    x = factor * tl.minimum(tl.maximum(x, low), high)
    largest = tl.max(tl.where(inside, x, float("-inf")), axis=0)
    tl.store(x_ptr + row + i, x - largest, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor, hardtanh_min, hardtanh_max):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.scaling_factor = scaling_factor
        self.hardtanh_min = hardtanh_min
        self.hardtanh_max = hardtanh_max

    def forward(self, x):
        x = self.gemm(x)
        rows, cols = x.shape
        clamp_below_maximum[(rows,)](
            x, cols, self.hardtanh_min, self.hardtanh_max, self.scaling_factor,
            BLOCK=triton.next_power_of_2(cols), num_warps=8,
        )  # fmt: skip
        return x
