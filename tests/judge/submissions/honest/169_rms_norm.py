# heuristics choose block and warps of a bf16 norm with fp32 sums | task: rms_norm | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.heuristics(
    {
        "BLOCK": lambda args: triton.next_power_of_2(args["hidden"]),
        "num_warps": lambda args: min(16, max(1, triton.next_power_of_2(args["hidden"]) // 256)),
    }
)
@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, stride, hidden, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < hidden
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    rms = tl.sqrt(tl.sum(x * x, axis=0) / hidden + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * hidden + cols, (x / rms * w).to(y_ptr.dtype.element_ty), mask=mask)


class TritonRMSNorm(nn.RMSNorm):
    """Keeps nn.RMSNorm's constructor, weights and representation."""

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        y = torch.empty_like(rows, memory_format=torch.contiguous_format)
        rms_norm_kernel[(rows.shape[0],)](rows, self.weight, y, rows.stride(0), rows.shape[1], self.eps)
        return y.view(x.shape)


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = TritonRMSNorm(hidden, eps=1e-6, dtype=torch.bfloat16)

    def forward(self, x):
        return self.norm(x)
