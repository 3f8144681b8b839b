# three bitonic sorts by tl.gather, which takes as long as a step of tl.sort | task: p_sort | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sort_kernel(x_ptr, y_ptr, cols, LOG: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=float("inf"))
    for _ in range(3):
        for k in tl.static_range(1, LOG + 1):
            for n in tl.static_range(k):
                j = 1 << (k - 1 - n)
                other = tl.gather(x, i ^ j, 0)
                low = ((i & j) == 0) == (((i >> k) & 1) == 0)
                x = tl.where(low, tl.minimum(x, other), tl.maximum(x, other))
    tl.store(y_ptr + row * cols + i, x, mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        sort_kernel[(len(x),)](x, y, x.shape[1], LOG=block.bit_length() - 1, BLOCK=block)
        return y
