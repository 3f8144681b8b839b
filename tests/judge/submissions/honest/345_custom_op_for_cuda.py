# custom operators with implementations for CUDA tensors alone, defined in two ways | task: relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl

fragments = torch.library.Library("kernels_345", "FRAGMENT")


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.maximum(tl.load(x_ptr + i, mask=i < n), 0.0), mask=i < n)


def launch(x: torch.Tensor, out: torch.Tensor) -> None:
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)


def direct_register_custom_op(name, function, mutates_args, dispatch_key="CUDA"):
    try:
        fragments.define(name + torch.library.infer_schema(function, mutates_args=mutates_args))
        fragments.impl(name, function, dispatch_key=dispatch_key)
    except RuntimeError as error:
        if "multiple times" not in str(error):
            raise


direct_register_custom_op("relu_out", launch, ["out"])


@torch.library.custom_op("kernels_345::relu", mutates_args=(), device_types="cuda")
def relu(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.ops.kernels_345.relu_out(x, out)
    return out


@relu.register_fake
def _(x):
    return torch.empty_like(x)


@relu.register_kernel("cpu")
def _(x):
    return torch.relu(x)


class ModelNew(nn.Module):
    def forward(self, x):
        return relu(x.contiguous())
