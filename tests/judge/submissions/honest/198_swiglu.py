# both halves of a row are read by stride, without chunks | task: swiglu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu_kernel(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = col < width
    gate = tl.load(x_ptr + row * 2 * width + col, mask=mask).to(tl.float32)
    value = tl.load(x_ptr + row * 2 * width + width + col, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * width + col, (silu(gate) * value).to(y_ptr.dtype.element_ty), mask=mask)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        rows, width = x.shape[0], x.shape[1] // 2
        y = torch.empty((rows, width), device=x.device, dtype=x.dtype)
        block = min(1024, triton.next_power_of_2(width))
        swiglu_kernel[(rows, triton.cdiv(width, block))](x, y, width, BLOCK=block)
        return y

    @staticmethod
    def backward(ctx, grad):
        raise NotImplementedError("inference only")


class ModelNew(nn.Module):
    def forward(self, x):
        return SwiGLU.apply(x.contiguous())
