# as many eager calls as a counter says come before the capture | task: gelu_by_hand | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh(x):
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@triton.jit
def gelu_forward(x_ptr, y_ptr, numel, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offset, mask=offset < numel, other=0.0)
    y = 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    tl.store(y_ptr + offset, y, mask=offset < numel)


class ModelNew(nn.Module):
    """The first calls compile and warm up; later ones replay a graph on inputs that are copied into it."""

    def __init__(self, warm_up: int = 2):
        super().__init__()
        self.warm_up = warm_up
        self.seen = 0
        self.graph = None
        self.static_x = None
        self.static_y = None

    def run(self, x):
        y = torch.empty_like(x)
        gelu_forward[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), BLOCK=2048)
        return y

    def forward(self, x):
        x = x.contiguous()
        self.seen += 1
        if self.seen <= self.warm_up:
            return self.run(x)
        if self.graph is None or self.static_x.shape != x.shape:
            self.static_x = x.clone()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.static_y = self.run(self.static_x)
        self.static_x.copy_(x)
        self.graph.replay()
        return self.static_y.clone()
