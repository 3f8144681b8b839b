# a side stream that is waited for before and after, and one of high priority | task: relu | expect: ok
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
        self.stream = torch.cuda.Stream()

    def forward(self, x):
        main, urgent = torch.cuda.current_stream(), torch.cuda.Stream(priority=-1)
        main.wait_stream(self.stream)
        y = torch.empty_like(x)
        for stream, begin in ((self.stream, 0), (urgent, x.shape[0] // 2)):
            rows, out = x[begin : begin + x.shape[0] // 2 + 1], y[begin : begin + x.shape[0] // 2 + 1]
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                relu_kernel[(triton.cdiv(rows.numel(), 1024),)](rows, out, rows.numel(), BLOCK=1024)
        main.wait_stream(self.stream)
        main.wait_stream(urgent)
        return y
