import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_pool(x_ptr, out_ptr, samples, windows, stride, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    signal = tl.program_id(0).to(tl.int64)
    window = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in tl.static_range(SIZE):
        x = tl.load(x_ptr + signal * samples + window * stride + i, mask=window < windows, other=0.0)
        squares += x * x
    tl.store(out_ptr + signal * windows + window, tl.sqrt(squares), mask=window < windows)


class ModelNew(nn.Module):
    def __init__(self, norm_type, kernel_size, stride):
        super().__init__()
        assert norm_type == 2
        self.kernel_size = kernel_size
        self.stride = stride

    def forward(self, x):
        x = x.contiguous()
        batch, features, samples = x.shape
        windows = (samples - self.kernel_size) // self.stride + 1
        out = torch.empty(batch, features, windows, device=x.device, dtype=x.dtype)
        norm_pool[(batch * features, triton.cdiv(windows, 1024))](
            x, out, samples, windows, self.stride, SIZE=self.kernel_size, BLOCK=1024
        )
        return out
