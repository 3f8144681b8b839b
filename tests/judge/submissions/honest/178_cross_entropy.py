# an online log-sum-exp per row, then the mean by a second kernel of one program | task: cross_entropy | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_losses(logits_ptr, targets_ptr, losses_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * classes
    m = float("-inf")
    d = 0.0
    for start in range(0, classes, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + c, mask=c < classes, other=float("-inf"))
        m_new = tl.maximum(m, tl.max(x))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new))
        m = m_new
    target = tl.load(targets_ptr + row)
    tl.store(losses_ptr + row, m + tl.log(d) - tl.load(logits_ptr + target))


@triton.jit
def mean_of_losses(losses_ptr, out_ptr, n, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        acc += tl.load(losses_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr, tl.sum(acc) / n)


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        n, classes = logits.shape
        losses = torch.empty(n, device=logits.device, dtype=torch.float32)
        out = torch.empty((), device=logits.device, dtype=logits.dtype)
        row_losses[(n,)](logits.contiguous(), targets.contiguous(), losses, classes, BLOCK=1024)
        mean_of_losses[(1,)](losses, out, n, BLOCK=1024)
        return out
