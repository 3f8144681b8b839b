# rotary embedding of queries and keys, two launches of one kernel | task: rotary | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, y_ptr, length, half, HALF: tl.constexpr):
    row = tl.program_id(0)
    t = row % length
    d = tl.arange(0, HALF)
    mask = d < half
    x = x_ptr + row.to(tl.int64) * 2 * half
    y = y_ptr + row.to(tl.int64) * 2 * half
    x1 = tl.load(x + d, mask=mask).to(tl.float32)
    x2 = tl.load(x + half + d, mask=mask).to(tl.float32)
    cos1 = tl.load(cos_ptr + t * 2 * half + d, mask=mask).to(tl.float32)
    sin1 = tl.load(sin_ptr + t * 2 * half + d, mask=mask).to(tl.float32)
    cos2 = tl.load(cos_ptr + t * 2 * half + half + d, mask=mask).to(tl.float32)
    sin2 = tl.load(sin_ptr + t * 2 * half + half + d, mask=mask).to(tl.float32)
    tl.store(y + d, (x1 * cos1 - x2 * sin1).to(tl.float16), mask=mask)
    tl.store(y + half + d, (x2 * cos2 + x1 * sin2).to(tl.float16), mask=mask)


def rotate(x, cos, sin):
    x = x.contiguous()
    length, dim = x.shape[-2:]
    y = torch.empty_like(x)
    rows = x.numel() // dim
    rotary_kernel[(rows,)](x, cos, sin, y, length, dim // 2, HALF=triton.next_power_of_2(dim // 2), num_warps=1)
    return y


class ModelNew(nn.Module):
    def forward(self, q, k, cos, sin):
        cos, sin = cos.contiguous(), sin.contiguous()
        return rotate(q, cos, sin), rotate(k, cos, sin)
