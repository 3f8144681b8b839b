# nn.Linear is kept under the reference's name; what follows it is one kernel | task: linear_sigmoid_sum | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sigmoid_row_sum(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + i, mask=i < columns, other=-float("inf"))
        total += 1.0 / (1.0 + tl.exp(-x))
    tl.store(out_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    """y = sum(sigmoid(linear(x)), dim=1, keepdim=True)."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x)
        out = h.new_empty(h.shape[0], 1)
        sigmoid_row_sum[(h.shape[0],)](h, out, h.shape[1], h.stride(0), BLOCK=512)
        return out
