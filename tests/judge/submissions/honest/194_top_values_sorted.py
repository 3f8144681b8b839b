# tl.sort in descending order, of which the head is stored | task: top_values | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sort_rows(x_ptr, out_ptr, cols, k, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=float("-inf"))
    tl.store(out_ptr + row * k + i, tl.sort(x, descending=True), mask=i < k)


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        rows, cols = x.shape
        if cols > 4096:
            raise ValueError(f"rows of at most 4096 values fit into one program, found {cols}")
        out = torch.empty(rows, self.k, device=x.device, dtype=x.dtype)
        sort_rows[(rows,)](x.contiguous(), out, cols, self.k, BLOCK=triton.next_power_of_2(cols), num_warps=4)
        return out
