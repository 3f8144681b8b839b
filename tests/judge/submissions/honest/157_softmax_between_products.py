# the library's products with a masked softmax in place between them | task: small_attention | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_mask_softmax_(scores, valid, scale, rows_per_batch, keys, ROWS: tl.constexpr, KEYS: tl.constexpr, total):
    """In place: each row is scaled, masked and normalised."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    key = tl.arange(0, KEYS)
    inside = (row[:, None] < total) & (key[None, :] < keys)
    at = scores + row[:, None] * keys + key[None, :]
    s = tl.load(at, mask=inside, other=0.0) * scale
    keep = tl.load(valid + (row // rows_per_batch)[:, None] * keys + key[None, :], mask=inside, other=0)
    s = tl.where(keep.to(tl.int1), s, float("-inf"))
    e = tl.exp(s - tl.max(s, 1, keep_dims=True))
    tl.store(at, e / tl.sum(e, 1, keep_dims=True), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, head_dim):
        super().__init__()
        self.scale = head_dim**-0.5

    def forward(self, q, k, v, valid):
        scores = torch.matmul(q, k.transpose(-1, -2))
        batch, heads, queries, keys = scores.shape
        total = batch * heads * queries
        scale_mask_softmax_[(triton.cdiv(total, 8),)](
            scores, valid, self.scale, heads * queries, keys, 8, triton.next_power_of_2(keys), total
        )
        return torch.matmul(scores, v)
