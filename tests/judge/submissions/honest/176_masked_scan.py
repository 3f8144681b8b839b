# a scan of pairs: the flag of a mask and the value | task: masked_cumsum | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_cumsum_kernel(x_ptr, mask_ptr, y_ptr, cols, stride_x, stride_m, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    running = tl.zeros((1,), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        inside = offs < cols
        value = tl.load(x_ptr + row * stride_x + offs, mask=inside, other=0.0)
        keep = tl.load(mask_ptr + row * stride_m + offs, mask=inside, other=0)
        value = tl.where(keep != 0, value, 0.0)
        tl.store(y_ptr + row * stride_y + offs, tl.cumsum(value, axis=0) + running, mask=inside)
        running += tl.sum(value, axis=0)


def masked_cumsum(x, mask):
    if x.shape != mask.shape or x.ndim != 2:
        raise ValueError("x and mask must be matrices of one shape")
    x, flags = x.contiguous(), mask.contiguous().view(torch.uint8)  # Triton reads bytes
    y = torch.empty_like(x)
    masked_cumsum_kernel[(x.shape[0],)](
        x, flags, y, x.shape[1], x.stride(0), flags.stride(0), y.stride(0), BLOCK=1024, num_warps=4
    )
    return y


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return masked_cumsum(x, mask)
