# mean over the tokens that a mask of integers keeps | task: masked_mean_pool | expect: ok
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_mean_kernel(x_ptr, mask_ptr, out_ptr, length, hidden, BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    acc = tl.zeros((BLOCK_H,), dtype=tl.float32)
    count = tl.zeros((BLOCK_T,), dtype=tl.float32)
    for t0 in range(0, length, BLOCK_T):
        t = t0 + tl.arange(0, BLOCK_T)
        keep = tl.load(mask_ptr + b * length + t, mask=t < length, other=0)
        weight = keep.to(tl.float32)
        x = tl.load(
            x_ptr + (b * length + t[:, None]) * hidden + h[None, :],
            mask=(keep[:, None] != 0) & (h[None, :] < hidden),  # padding is not even read
            other=0.0,
        )
        acc += tl.sum(x * weight[:, None], axis=0)
        count += weight
    tl.store(out_ptr + b * hidden + h, acc / tl.maximum(tl.sum(count), 1.0), mask=h < hidden)


class ModelNew(nn.Module):
    def forward(self, tokens, attention_mask):
        batch, length, hidden = tokens.shape
        out = tokens.new_empty(batch, hidden)
        grid = (batch, triton.cdiv(hidden, 64))
        masked_mean_kernel[grid](
            tokens.contiguous(), attention_mask.contiguous(), out, length, hidden, BLOCK_T=32, BLOCK_H=64
        )
        return out
