# a mask that is broadcast over heads, fp16 in and out | task: masked_softmax | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_softmax_kernel(s_ptr, m_ptr, o_ptr, heads, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    head = tl.program_id(1)
    batch = tl.program_id(2)
    cols_range = tl.arange(0, BLOCK)
    inside = cols_range < cols
    s_row = ((batch * heads + head) * rows + row).to(tl.int64) * cols
    m_row = (batch * rows + row).to(tl.int64) * cols
    scores = tl.load(s_ptr + s_row + cols_range, mask=inside, other=float("-inf")).to(tl.float32)
    allowed = tl.load(m_ptr + m_row + cols_range, mask=inside, other=0.0)
    scores = tl.where(inside & (allowed == 0), -1e4, scores)
    scores -= tl.max(scores, axis=0)
    e = tl.exp(scores)
    tl.store(o_ptr + s_row + cols_range, (e / tl.sum(e, axis=0)).to(tl.float16), mask=inside)


class ModelNew(nn.Module):
    def forward(self, scores, mask):
        scores, mask = scores.contiguous(), mask.contiguous()
        batch, heads, rows, cols = scores.shape
        if mask.shape != (batch, 1, rows, cols):
            raise ValueError(f"expected a mask of {(batch, 1, rows, cols)}, found {tuple(mask.shape)}")
        out = torch.empty_like(scores)
        masked_softmax_kernel[(rows, heads, batch)](
            scores, mask, out, heads, rows, cols, BLOCK=triton.next_power_of_2(cols)
        )
        return out
