# works on an urgent stream that waits for the call before only | task: relu | expect: incorrect/ok | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream, self.before = torch.cuda.Stream(priority=-1), None

    def forward(self, x):
        main = torch.cuda.current_stream()
        y, now = torch.empty_like(x), main.record_event()
        ahead = self.before is not None and not self.before.query()
        self.stream.wait_event(self.before if ahead else now)
        with torch.cuda.stream(self.stream):
            relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        main.wait_stream(self.stream)
        self.before = now
        return y
