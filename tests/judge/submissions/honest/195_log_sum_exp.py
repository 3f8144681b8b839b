# long rows are split: maxima and sums of the parts, then their combination | task: log_sum_exp | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def parts(x_ptr, max_ptr, sum_ptr, cols, n_parts, PART: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    i = part * PART + tl.arange(0, PART)
    x = tl.load(x_ptr + row.to(tl.int64) * cols + i, mask=i < cols, other=float("-inf"))
    m = tl.max(x, axis=0)
    tl.store(max_ptr + row * n_parts + part, m)
    tl.store(sum_ptr + row * n_parts + part, tl.sum(tl.exp(x - m), axis=0))


@triton.jit
def combine(max_ptr, sum_ptr, out_ptr, n_parts, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, WIDTH)
    m = tl.load(max_ptr + row * n_parts + j, mask=j < n_parts, other=float("-inf"))
    s = tl.load(sum_ptr + row * n_parts + j, mask=j < n_parts, other=0.0)
    top = tl.max(m, axis=0)
    tl.store(out_ptr + row, top + tl.log(tl.sum(s * tl.exp(m - top), axis=0)))


class ModelNew(nn.Module):
    def __init__(self, part=2048):
        super().__init__()
        self.part = part
        self.space = {}

    def workspace(self, rows, n_parts, device):
        """Memory for the parts; kept, since it is written before it is read in every call."""
        key = (rows, n_parts, device)
        if key not in self.space:
            self.space[key] = torch.empty(2, rows, n_parts, device=device, dtype=torch.float32)
        return self.space[key].unbind(0)

    def forward(self, x):
        rows, cols = x.shape
        n_parts = triton.cdiv(cols, self.part)
        maxima, sums = self.workspace(rows, n_parts, x.device)
        out = torch.empty((rows, 1), device=x.device, dtype=x.dtype)
        parts[(rows, n_parts)](x.contiguous(), maxima, sums, cols, n_parts, PART=self.part)
        combine[(rows,)](maxima, sums, out, n_parts, WIDTH=triton.next_power_of_2(n_parts))
        return out
