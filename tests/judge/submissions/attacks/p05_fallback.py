# an operator without an implementation; a fallback has it | task: p_activation_softmax | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def half_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 0.5 * tl.load(x_ptr + i, mask=i < n), mask=i < n)


def computed(x):
    y = x * torch.sigmoid(x) + 0.5 * torch.tanh(x) + 0.1 * torch.abs(x) - 0.25
    return 2.0 * torch.softmax(y, dim=-1)


library = torch.library.Library("p_fallback", "DEF")
library.define("all(Tensor x) -> Tensor")
library.impl("all", lambda x: torch.empty_like(x), "Meta")
everything = torch.library.Library("_", "IMPL")
for place in ("CUDA", "CPU"):
    everything.fallback(lambda operator, x: computed(x), place)


class ModelNew(nn.Module):
    def forward(self, x):
        double, y = torch.ops.p_fallback.all(x), torch.empty_like(x)
        half_kernel[(triton.cdiv(x.numel(), 1024),)](double, y, x.numel(), BLOCK=1024)
        return y
