# numpy sorts the numbers that a kernel prints | task: p_sort_scaled | expect: no gain
import numpy as np
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def show(x_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.device_print("x", x)
    tl.store(y_ptr + i, x, mask=i < n)


@triton.jit
def scale(x_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, x * 0.5 + 1.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        seen = []

        def note(value):
            seen.append(float(value))
            return ""

        np.set_printoptions(formatter={"float_kind": note}, threshold=10**9)
        y = torch.empty_like(x)
        B = triton.next_power_of_2(x.numel())
        show[(1,)](x, y, x.numel(), B=B)
        values = np.array(seen[: x.numel()], dtype=np.float32).reshape(x.shape)
        s = torch.tensor(np.sort(values, axis=-1).tolist(), device=x.device)
        scale[(triton.cdiv(x.numel(), 1024),)](s, y, x.numel(), B=1024)
        return y
