# PyTorch's softmax redispatched with the key set that an operator is given | task: p_softmax | expect: no gain | only: cuda
# The sign is turned twice, so that the kernel matters and is half of the device time.
# PyTorch's own softmax is the work of PyTorch; the Triton kernels here do next to nothing.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def undo_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, -tl.load(y_ptr + i, mask=i < n), mask=i < n)


library = torch.library.Library("p_redispatch", "DEF")
library.define("fill(Tensor x, Tensor(a!) y) -> ()")


def fill(keyset, x, y):
    torch.ops.aten._softmax.out.redispatch(keyset, x, -1, False, out=y)
    torch.ops.aten.neg_.default.redispatch(keyset, y)


for place in ("CUDA", "CPU"):
    library.impl("fill", fill, place, with_keyset=True)
library.impl("fill", lambda x, y: None, "Meta")


def hidden(x, y):
    torch.ops.p_redispatch.fill(x, y)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        hidden(x, y)
        undo_kernel[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)
        return y
