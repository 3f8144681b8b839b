"""The Triton kernel that ends a decode step of the graphs engine: draws each sequence's token and notes it down.

One program per row walks twice along the vocabulary, in float32: for the greatest logit and the sum of the
exponentials, then for the token at which the cumulative sum passes the random number's share of it.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def advance(
    logits: Tensor,
    rows: Tensor,
    alive: Tensor,
    counts: Tensor,
    tokens: Tensor,
    positions: Tensor,
    limits: Tensor,
    temperatures: Tensor,
    uniforms: Tensor,
    drawn: Tensor,
    logprobs: Tensor,
    stops: Tensor,
) -> None:
    """One token for each of the slots rows [R] from logits [R, V], without truncation; the other tensors are those of
    decode_state.State, and stops are the tokens that end a sequence. Rows that are not alive change nothing."""
    assert logits.is_contiguous() and uniforms.is_contiguous() and drawn.is_contiguous() and logprobs.is_contiguous()
    block = min(BLOCK, triton.next_power_of_2(logits.shape[1]))
    _advance[(len(rows),)](
        *(logits, rows, alive, counts, tokens, positions, limits, temperatures, uniforms, drawn, logprobs, stops),
        *(logits.shape[1], uniforms.shape[1], len(stops)),
        STOPS=triton.next_power_of_2(len(stops)),
        BLOCK=block,
        num_warps=8 if block > 1024 else 4,
    )


@triton.jit
def _advance(
    logits,
    rows,
    alive,
    counts,
    tokens,
    positions,
    limits,
    temperatures,
    uniforms,
    drawn,
    logprobs,
    stops,
    size,
    context,
    stops_count,
    STOPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(rows + row)
    if tl.load(alive + slot) != 0:
        count = tl.load(counts + slot)
        position = tl.load(positions + slot)
        limit = tl.load(limits + slot)
        temperature = tl.load(temperatures + slot)
        greedy = temperature == 0
        inverse = 1 / tl.where(greedy, 1.0, temperature)
        start = logits + row * size
        top = -float("inf")
        total = 0.0
        best = 0
        for first in range(0, size, BLOCK):
            column = first + tl.arange(0, BLOCK)
            x = tl.load(start + column, mask=column < size, other=-float("inf")).to(tl.float32) * inverse
            high = tl.max(x, 0)
            best = tl.where(high > top, tl.min(tl.where(x == high, column, size), 0), best)
            higher = tl.maximum(top, high)
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), 0)
            top = higher
        target = tl.load(uniforms + slot * context + count) * tl.cast(total, tl.float64)
        before = target * 0
        taken = size
        last = 0
        for first in range(0, size, BLOCK):
            column = first + tl.arange(0, BLOCK)
            x = tl.load(start + column, mask=column < size, other=-float("inf")).to(tl.float32) * inverse
            share = tl.exp(x - top)
            reached = before + tl.cumsum(share, 0).to(tl.float64)
            # A token without probability is never drawn, however the sums are rounded.
            taken = tl.minimum(taken, tl.min(tl.where((reached > target) & (share > 0), column, size), 0))
            last = tl.maximum(last, tl.max(tl.where(share > 0, column, 0), 0))
            before += tl.sum(share, 0).to(tl.float64)
        taken = tl.where(greedy, best, tl.where(taken == size, last, taken))
        logprob = tl.load(start + taken).to(tl.float32) * inverse - top - tl.log(total)
        index = tl.arange(0, STOPS)
        stop = tl.load(stops + index, mask=index < stops_count, other=-1)
        stopped = tl.max((stop == taken).to(tl.int32), 0) > 0
        tl.debug_barrier()  # every thread has read what is overwritten now
        tl.store(drawn + slot * context + count, taken)
        tl.store(logprobs + slot * context + count, logprob)
        tl.store(tokens + slot, taken)
        tl.store(counts + slot, count + 1)
        tl.store(positions + slot, position + 1)
        tl.store(alive + slot, tl.where(stopped | (count + 1 >= limit), 0, 1))
