# two streams share the work and are joined by events | task: relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def half_kernel(x_ptr, y_ptr, start, end, BLOCK: tl.constexpr):
    i = start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < end)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < end)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()

    def forward(self, x):
        y = torch.empty_like(x)
        half = x.numel() // 2
        main = torch.cuda.current_stream()
        ready = main.record_event()
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(ready)
            half_kernel[(triton.cdiv(half, 1024),)](x, y, 0, half, BLOCK=1024)
            done = self.stream.record_event()
        half_kernel[(triton.cdiv(x.numel() - half, 1024),)](x, y, half, x.numel(), BLOCK=1024)
        main.wait_event(done)
        return y
