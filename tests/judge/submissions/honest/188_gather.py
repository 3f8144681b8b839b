# elements of a row by index, with a launcher that is cached per shape under a lock | task: gather_rows | expect: ok
import threading

import torch
import torch.nn as nn
import triton
import triton.language as tl

_LOCK = threading.Lock()
_LAUNCHERS = {}


@triton.jit
def gather_kernel(x_ptr, index_ptr, scale_ptr, y_ptr, cols, picked, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = j < picked
    index = tl.load(index_ptr + row * picked + j, mask=mask, other=0)
    x = tl.load(x_ptr + row * cols + index, mask=mask)
    tl.store(y_ptr + row * picked + j, x * tl.load(scale_ptr + row), mask=mask)


def launcher(rows, cols, picked):
    """The launch for one shape, made once."""
    key = (rows, cols, picked)
    with _LOCK:
        if key not in _LAUNCHERS:
            block = min(1024, triton.next_power_of_2(picked))
            grid = (rows, triton.cdiv(picked, block))
            _LAUNCHERS[key] = lambda x, i, s, y: gather_kernel[grid](x, i, s, y, cols, picked, BLOCK=block)
        return _LAUNCHERS[key]


class ModelNew(nn.Module):
    def forward(self, x, index, scale):
        y = torch.empty(index.shape, device=x.device, dtype=x.dtype)
        launch = launcher(x.shape[0], x.shape[1], index.shape[1])
        launch(x.contiguous(), index.contiguous(), scale.contiguous(), y)
        return y
