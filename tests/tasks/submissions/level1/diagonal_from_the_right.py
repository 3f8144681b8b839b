import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_columns(x_ptr, d_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=inside)
    d = tl.load(d_ptr + col, mask=inside)
    tl.store(out_ptr + row * cols + col, x * d, mask=inside)


class ModelNew(nn.Module):
    def forward(self, X, d):
        X, d = X.contiguous(), d.contiguous()
        rows, cols = X.shape
        out = torch.empty_like(X)
        scale_columns[(rows, triton.cdiv(cols, 1024))](X, d, out, cols, BLOCK=1024)
        return out
