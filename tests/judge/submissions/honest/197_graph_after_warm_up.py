# a CUDA graph is captured after a few calls, which a counter per shape counts | task: gelu_by_hand | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl

WARM_UP = 3


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + i, x * tl.sigmoid(2.0 * u), mask=i < n)


def gelu(x, y):
    gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = {}
        self.graphs = {}

    def capture(self, shape, device):
        source = torch.zeros(shape, device=device)
        result = torch.empty_like(source)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            gelu(source, result)
        return graph, source, result

    def forward(self, x):
        shape = tuple(x.shape)
        self.calls[shape] = self.calls.get(shape, 0) + 1
        if self.calls[shape] <= WARM_UP:
            y = torch.empty_like(x, memory_format=torch.contiguous_format)
            gelu(x.contiguous(), y)
            return y
        if shape not in self.graphs:
            self.graphs[shape] = self.capture(shape, x.device)
        graph, source, result = self.graphs[shape]
        source.copy_(x)
        graph.replay()
        return result.clone()
