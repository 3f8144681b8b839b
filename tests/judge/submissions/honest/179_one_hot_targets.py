# log-softmax and the product with the targets in registers | task: soft_cross_entropy | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def soft_ce(logits, targets, out, classes, C: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, C)
    x = tl.load(logits + row * classes + c, mask=c < classes, other=-float("inf"))
    t = tl.load(targets + row * classes + c, mask=c < classes, other=0.0)
    x = x - tl.max(x, axis=0)
    log_sum = tl.log(tl.sum(tl.exp(x), axis=0))
    loss = tl.sum(tl.where(c < classes, t * (log_sum - x), 0.0), axis=0)
    tl.store(out + row, loss)


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        rows, classes = logits.shape
        out = torch.empty(rows, dtype=logits.dtype, device=logits.device)
        soft_ce[(rows,)](
            logits.contiguous(), targets.contiguous(), out, classes, triton.next_power_of_2(classes), num_warps=4
        )
        return out
