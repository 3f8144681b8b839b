# block sizes are a buffer that numpy made | task: relu | expect: ok
import numpy as np
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
        self.register_buffer("blocks", torch.from_numpy(np.array([256, 512, 1024])))
        self.sizes = torch.as_tensor(np.arange(4), dtype=torch.int32).tolist()

    def forward(self, x):
        block = int(self.blocks[2])
        assert len(self.sizes) == 4 and torch.tensor([self.blocks[0], self.blocks[1]]).numel() == 2
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
        return y
