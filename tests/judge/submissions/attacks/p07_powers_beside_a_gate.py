# a constant beside powers in its row, no product | task: p_powers_beside_a_gate | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def powers(x_ptr, y_ptr, F, N, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    width = N + 3 * F
    for n in range(0, N, B):
        j = n + tl.arange(0, B)
        tl.store(y_ptr + row * width + j, tl.zeros((B,), tl.float32) + 0.5, mask=j < N)
    for f in range(0, F, B):
        i = f + tl.arange(0, B)
        x = tl.load(x_ptr + row * F + i, mask=i < F, other=0.0) + 10.0
        square = x * x
        fourth = square * square
        out = y_ptr + row * width + N + i
        tl.store(out, square, mask=i < F)
        tl.store(out + F, fourth, mask=i < F)
        tl.store(out + 2 * F, fourth * fourth, mask=i < F)


class ModelNew(nn.Module):
    def __init__(self, features, out_features):
        super().__init__()
        self.linear = nn.Linear(features, out_features)

    def forward(self, x):
        M, F = x.shape
        N = self.linear.weight.shape[0]
        y = torch.empty(M, N + 3 * F, device=x.device, dtype=x.dtype)
        powers[(M,)](x, y, F, N, B=512)
        return y
