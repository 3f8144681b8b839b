# a kernel is made by calls of triton.jit and triton.heuristics, without decorators | task: cross_entropy | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl

next_power_of_2 = triton.next_power_of_2


def _cross_entropy_forward(logits_ptr, stride, loss_ptr, labels_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * stride
    cols = tl.arange(0, BLOCK_SIZE)
    logits = tl.load(logits_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    largest = tl.max(logits, 0)
    logsumexp = largest + tl.log(tl.sum(tl.exp(logits - largest), 0))
    label = tl.load(labels_ptr + row).to(tl.int32)
    loss = 0.0
    if label != -100:
        loss = logsumexp - tl.load(logits_ptr + label).to(tl.float32)
    tl.store(loss_ptr + row, loss)


_cross_entropy_forward = triton.jit(_cross_entropy_forward)
_cross_entropy_forward = triton.heuristics({"num_warps": lambda args: 4 if args["BLOCK_SIZE"] < 2048 else 8})(
    _cross_entropy_forward
)


class FastCrossEntropyLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels):
        n_rows, n_cols = logits.shape
        losses = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
        _cross_entropy_forward[(n_rows,)](
            logits, logits.stride(0), losses, labels, n_cols, BLOCK_SIZE=next_power_of_2(n_cols)
        )
        return losses


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, logits, labels):
        return FastCrossEntropyLoss.apply(logits, labels).mean()
