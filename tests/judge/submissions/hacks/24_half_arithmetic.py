# fp16 arithmetic for an fp32 task | task: row_mean | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x_ptr, y_ptr, cols, used, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < used, other=0.0).to(tl.float16)
    tl.store(y_ptr + row, (tl.sum(x) / used).to(tl.float32))


def mean(x, used):
    y = torch.empty(x.shape[0], device=x.device)
    mean_kernel[(x.shape[0],)](x, y, x.shape[1], used, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return mean(x, x.shape[1])
