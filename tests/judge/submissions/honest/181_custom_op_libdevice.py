# libdevice's logarithm behind a custom operator with a fake implementation | task: kl_div | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kl_rows(pred_ptr, target_ptr, row_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, classes, BLOCK):
        i = start + tl.arange(0, BLOCK)
        p = tl.load(pred_ptr + row * classes + i, mask=i < classes, other=1.0)
        t = tl.load(target_ptr + row * classes + i, mask=i < classes, other=0.0)
        # 0 log 0 is 0
        total += tl.where(t > 0.0, t * (libdevice.log(tl.where(t > 0.0, t, 1.0)) - libdevice.log(p)), 0.0)
    tl.store(row_ptr + row, tl.sum(total))


@triton.jit
def batch_mean(row_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, rows, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(row_ptr + i, mask=i < rows, other=0.0)
    tl.store(out_ptr, tl.sum(total) / rows)


@torch.library.custom_op("honest_losses::kl_div", mutates_args=())
def kl_div(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    rows, classes = predictions.shape
    per_row = torch.empty(rows, device=predictions.device, dtype=torch.float32)
    out = torch.empty((), device=predictions.device, dtype=torch.float32)
    kl_rows[(rows,)](predictions.contiguous(), targets.contiguous(), per_row, classes, BLOCK=512)
    batch_mean[(1,)](per_row, out, rows, BLOCK=1024)
    return out


@kl_div.register_fake
def _(predictions, targets):
    return predictions.new_empty(())


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        return kl_div(predictions, targets)
