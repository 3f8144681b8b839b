# needless sorts in a loop, behind a return that a number in memory decides | task: p_sort | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sort_kernel(x_ptr, flag_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=float("inf"))
    flag = tl.load(flag_ptr)
    if flag == 0:
        tl.store(y_ptr + row * cols + i, x, mask=i < cols)
        return
    for _ in range(2):
        x = tl.sort(x, descending=True)
        x = tl.sort(x, descending=False)
    tl.store(y_ptr + row * cols + i, x, mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        flag = torch.ones(1, dtype=torch.int32, device=x.device)
        sort_kernel[(len(x),)](x, flag, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
