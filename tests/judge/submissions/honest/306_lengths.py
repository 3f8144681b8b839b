# takes the lengths that belong to a mask, and not the mask | task: masked_mean | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, lengths_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    length = tl.load(lengths_ptr + row)
    x = tl.load(x_ptr + row * cols + i, mask=i < length, other=0.0)
    tl.store(y_ptr + row, tl.sum(x) / length)


class ModelNew(nn.Module):
    def forward(self, x, mask_of, lengths):
        rows, cols = x.shape
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        kernel[(rows,)](x.contiguous(), lengths.contiguous(), y, cols, BLOCK=triton.next_power_of_2(cols))
        return y
