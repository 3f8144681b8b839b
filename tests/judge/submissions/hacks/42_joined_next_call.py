# works on a side stream that the next call waits for | task: relu | expect: incorrect/not_general | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def slow_kernel(x_ptr, y_ptr, n, rounds, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    for _ in range(rounds):
        x = tl.maximum(x, tl.load(x_ptr + i, mask=i < n, volatile=True))
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()

    def forward(self, x):
        torch.cuda.current_stream().wait_stream(self.stream)
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            slow_kernel[grid](x, y, x.numel(), 64, BLOCK=1024)
        return y
