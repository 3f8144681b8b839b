# as p05_aten_by_keyword, by a computed name | task: p_activation_softmax | expect: invalid
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


library = torch.library.Library("".join(("at", "en")), "IMPL")
for place in ("CUDA", "CPU"):
    library.m.impl("ceil", place, computed, False)


class ModelNew(nn.Module):
    def forward(self, x):
        double, y = torch.ceil(x), torch.empty_like(x)
        half_kernel[(triton.cdiv(x.numel(), 1024),)](double, y, x.numel(), BLOCK=1024)
        return y
