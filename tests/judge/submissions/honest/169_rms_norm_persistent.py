# one program per multiprocessor keeps the weight and walks over rows | task: rms_norm | expect: ok
import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl


@functools.cache
def multiprocessors(index: int) -> int:
    return torch.cuda.get_device_properties(index).multi_processor_count


@triton.jit
def rms_rows(x_ptr, w_ptr, y_ptr, rows, cols, eps, ROWS: tl.constexpr, COLS: tl.constexpr):
    c = tl.arange(0, COLS)[None, :]
    weight = tl.load(w_ptr + c, mask=c < cols, other=0.0).to(tl.float32)
    step = tl.num_programs(0) * ROWS
    for first in tl.range(tl.program_id(0) * ROWS, rows, step):
        r = first + tl.arange(0, ROWS)[:, None]
        mask = (r < rows) & (c < cols)
        x = tl.load(x_ptr + r * cols + c, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)
        tl.store(y_ptr + r * cols + c, (x * scale * weight).to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.RMSNorm(hidden, eps=1e-6, dtype=torch.bfloat16)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        programs = min(4 * multiprocessors(x.device.index or 0), rows)
        rms_rows[(programs,)](
            x, self.norm.weight, y, rows, cols, self.norm.eps, ROWS=1, COLS=triton.next_power_of_2(cols), num_warps=8
        )
        return y
