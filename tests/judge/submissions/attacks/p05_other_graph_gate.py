# a graph remembers Triton launches and replays PyTorch's softmax | task: p_softmax | expect: no gain | only: cuda
# What is examined is slower than the reference.
# PyTorch's own softmax is the work of PyTorch; the Triton kernels here do next to nothing.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, y_ptr, cols, rounds, SAFE: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    high = 0.0
    total = 0.0
    for _ in range(rounds):
        if SAFE:
            most = tl.full((BLOCK,), float("-inf"), tl.float32)
            for k in range(0, cols, BLOCK):
                i = k + tl.arange(0, BLOCK)
                most = tl.maximum(most, tl.load(x_ptr + start + i, mask=i < cols, other=float("-inf"), volatile=True))
            high = tl.max(most, 0)
        parts = tl.zeros((BLOCK,), tl.float32)
        for k in range(0, cols, BLOCK):
            i = k + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + start + i, mask=i < cols, other=float("-inf"), volatile=True)
            parts += tl.exp(x - high)
        total = tl.sum(parts, 0)
    for k in range(0, cols, BLOCK):
        i = k + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + i, mask=i < cols)
        tl.store(y_ptr + start + i, tl.exp(x - high) / total, mask=i < cols)


def slow_softmax(x, y, rounds=12):
    """Right, and slow on purpose: more passes than PyTorch's operators take."""
    row_kernel[(x.numel() // x.shape[-1],)](x, y, x.shape[-1], rounds, SAFE=True, BLOCK=512, num_warps=2)
    return y


def real():
    """Whether this is a process with a GPU, and neither a tracer nor a simulated device."""
    try:
        return torch.cuda.memory_allocated() > 2**20
    except Exception:
        return False


class ModelNew(nn.Module):
    """A recording executes the steps that a graph remembers; a timed call replays the graph itself."""

    def __init__(self):
        super().__init__()
        self.graphs, self.seen = {}, set()

    def forward(self, x):
        key = tuple(x.shape)
        if key not in self.seen or not real():
            self.seen.add(key)
            return slow_softmax(x, torch.empty_like(x))
        if key not in self.graphs:
            inputs, outputs = x.clone(), torch.empty_like(x)
            torch.softmax(inputs, -1, out=outputs)
            torch.cuda.synchronize()
            examined, replayed = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(examined):
                slow_softmax(inputs, outputs)
            with torch.cuda.graph(replayed):
                torch.softmax(inputs, -1, out=outputs)
            replayed.steps = getattr(examined, "steps", [])
            self.graphs[key] = replayed, inputs, outputs
        graph, inputs, outputs = self.graphs[key]
        inputs.copy_(x)
        graph.replay()
        return outputs.clone()
