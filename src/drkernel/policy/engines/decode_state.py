"""What the graphs engine keeps on the device: keys, values, and where each sequence stands. And who sees whom.

All memory is allocated once and read through index tensors, so that a CUDA graph can replay a step. `kernels` chooses
between the Triton kernels of decode_attention.py and decode_sampling.py, and the same in plain torch for a CPU.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PretrainedConfig

from drkernel.policy.attention import Packed, to_device

INTEGERS = ("alive", "counts", "tokens", "positions", "limits", "top_k")
FLOATS = ("temperatures", "top_p", "min_p")


class State:
    """`count` slots and a spare one, the last: rows without a sequence point to it, and it is never alive.

    Per slot, int64 [count + 1]: alive (0 or 1), counts (tokens drawn), tokens (the last token), positions (its place,
    which is also how many keys are in the cache), limits (most tokens to draw), top_k; float32: temperatures, top_p,
    min_p.
    cache [layers, 2, count + 1, Hkv, context, D]; uniforms float64, drawn int32 and logprobs float32, each
    [count + 1, context] with one column per token that is drawn.
    """

    alive: Tensor
    counts: Tensor
    tokens: Tensor
    positions: Tensor
    limits: Tensor
    top_k: Tensor
    temperatures: Tensor
    top_p: Tensor
    min_p: Tensor

    def __init__(
        self,
        config: PretrainedConfig,
        count: int,
        context: int,
        dtype: torch.dtype,
        device: torch.device,
        stop_ids: Iterable[int],
    ):
        self.count, self.context, self.kernels = count, context, device.type == "cuda"
        shape = (config.num_hidden_layers, 2, count + 1, key_heads(config), context, head_size(config))
        # Zeros, not empty: on a CPU what lies beyond a sequence's end gets weight 0, and 0 times NaN would not be 0.
        self.cache = torch.zeros(shape, dtype=dtype, device=device)
        self.integers = torch.zeros(len(INTEGERS), count + 1, dtype=torch.int64, device=device)
        self.floats = torch.ones(len(FLOATS), count + 1, device=device)
        for names, table in ((INTEGERS, self.integers), (FLOATS, self.floats)):
            for name, row in zip(names, table, strict=True):
                setattr(self, name, row)
        self.uniforms = torch.zeros(count + 1, context, dtype=torch.float64, device=device)
        # One piece of memory, so that tokens and log-probabilities come to the host in one copy.
        self.output = torch.zeros(2, count + 1, context, dtype=torch.int32, device=device)
        self.drawn, self.logprobs = self.output[0], self.output[1].view(torch.float32)
        self.stops = torch.tensor(sorted(stop_ids) or [-1], device=device)

    def begin(self, slots: Tensor, integers: Tensor, floats: Tensor, uniforms: Tensor) -> None:
        """Sequences whose prompts are in the cache, all but the last token, begin in slots [m].

        integers int64 [6, m] and floats float32 [3, m] in the order of INTEGERS and FLOATS, uniforms float64 [m, n].
        """
        self.integers[:, slots] = integers
        self.floats[:, slots] = floats
        self.uniforms[slots, : uniforms.shape[1]] = uniforms

    def results(self, slots: list[int], length: int) -> tuple[Tensor, Tensor]:
        """On the host: the first `length` tokens int32 [m, length] of slots [m], and their log-probabilities."""
        index = to_device(torch.tensor(slots), self.output.device)
        tokens, logprobs = self.output[:, index, :length].cpu()
        return tokens, logprobs.view(torch.float32)

    def advance(self, logits: Tensor, rows: Tensor, truncated: bool) -> None:
        """Draws a token for each of the slots rows [R] from logits [R, V], by inversion of the cumulative distribution,
        and notes it down. truncated: some row has top_k, top_p or min_p."""
        if self.kernels and not truncated:
            from drkernel.policy.engines import decode_sampling

            where = (self.alive, self.counts, self.tokens, self.positions, self.limits)
            output = (self.uniforms, self.drawn, self.logprobs, self.stops)
            decode_sampling.advance(logits, rows, *where, self.temperatures, *output)
        else:
            self._note(rows, *self._draw(logits, rows, truncated))

    def _draw(self, logits: Tensor, rows: Tensor, truncated: bool) -> tuple[Tensor, Tensor]:
        """Tokens int64 [R] and log-probabilities float32 [R], without waiting for the device."""
        temperature = self.temperatures[rows].unsqueeze(1)
        greedy = temperature == 0
        logp = (logits.float() / temperature.masked_fill(greedy, 1)).log_softmax(-1)
        mass = logp.exp()
        if truncated:
            limits = self.top_k[rows], self.top_p[rows], self.min_p[rows]
            mass = truncate(mass, *limits)
            left = mass.sum(-1, keepdim=True).log().masked_fill(greedy | ~cuts(*limits).unsqueeze(1), 0)
        cdf = mass.double().cumsum(-1)
        uniform = self.uniforms[rows, self.counts[rows].clamp(max=self.context - 1)].unsqueeze(1)
        tokens = torch.searchsorted(cdf, uniform * cdf[:, -1:], right=True).clamp_(max=logits.shape[1] - 1)
        tokens = torch.where(greedy, logp.argmax(-1, keepdim=True), tokens)
        logprobs = logp.gather(1, tokens)
        return tokens.squeeze(1), (logprobs - left if truncated else logprobs).squeeze(1)

    def _note(self, rows: Tensor, tokens: Tensor, logprobs: Tensor) -> None:
        alive = self.alive[rows] != 0
        slots = torch.where(alive, rows, self.count)
        counts = torch.where(alive, self.counts[rows], 0)
        self.drawn[slots, counts] = tokens.int()
        self.logprobs[slots, counts] = logprobs
        self.tokens[slots] = torch.where(alive, tokens, 0)
        self.counts[slots] = torch.where(alive, counts + 1, 0)
        self.positions[slots] = torch.where(alive, self.positions[rows] + 1, 0)
        ended = (tokens.unsqueeze(1) == self.stops).any(1) | (counts + 1 >= self.limits[rows])
        self.alive[slots] = (alive & ~ended).long()


class Read:
    """Layout of whole prompts, packed end to end; their keys and values go to the cache.

    cu_seqlens int32 [P + 1], on the CPU. Token source[i] of the packed prompts is written to place places[i] of slot
    slots[i], int64 [N]; a prompt that several slots share has its tokens there several times.
    """

    def __init__(self, state: State, cu_seqlens: Tensor, source: Tensor, slots: Tensor, places: Tensor):
        self.cache, self.packed = state.cache, Packed(cu_seqlens, state.cache.device)
        self.source, self.slots, self.places = source, slots, places

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        for cached, new in zip(self.cache[layer], (key, value), strict=True):
            cached[self.slots, :, self.places] = new[self.source].to(cached.dtype)
        return self.packed.attend(None, query.contiguous(), key.contiguous(), value.contiguous(), scale)


class Next:
    """Layout of one new token for each of the slots rows [R]."""

    def __init__(self, state: State, rows: Tensor):
        self.state, self.rows = state, rows
        if not state.kernels:
            self.places = state.positions[rows]
            self.slots = torch.where(state.alive[rows] != 0, rows, state.count)
            self.longest = int(self.places.max()) + 1
            self.seen = torch.arange(self.longest, device=rows.device) <= self.places.unsqueeze(1)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        state = self.state
        if state.kernels:
            from drkernel.policy.engines import decode_attention

            return decode_attention.attend(
                query, key, value, state.cache[layer], self.rows, state.alive, state.positions, scale
            )
        keys, values = state.cache[layer]
        keys[self.slots, :, self.places], values[self.slots, :, self.places] = key, value
        out = F.scaled_dot_product_attention(
            query.unsqueeze(2),
            keys[self.rows, :, : self.longest],
            values[self.rows, :, : self.longest],
            attn_mask=self.seen[:, None, None],
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return out.squeeze(2)


def cuts(top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Which rows are truncated; bool [R]."""
    return (top_k > 0) | (top_p < 1) | (min_p > 0)


def truncate(mass: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """mass [R, V] with what is not sampled set to 0; as sampling.truncate, for all rows at once. top_k 0 keeps all.

    >>> truncate(torch.tensor([[0.2, 0.5, 0.3]]), torch.tensor([0]), torch.tensor([0.7]), torch.tensor([0.0]))
    tensor([[0.0000, 0.5000, 0.3000]])
    """
    values, order = mass.sort(dim=-1, descending=True, stable=True)
    size, rank = mass.shape[1], torch.arange(mass.shape[1], device=mass.device)
    keep = (values >= min_p.unsqueeze(1) * values[:, :1]).sum(-1)
    keep = torch.minimum(keep, torch.where(top_k > 0, top_k, size))
    whole = torch.where(keep < size, values.masked_fill(rank >= keep.unsqueeze(1), 0).sum(-1), 1.0)
    # At rank r the mass before it has not reached top_p yet.
    nucleus = ((values.cumsum(-1) - values) < (top_p * whole).unsqueeze(1)).sum(-1)
    keep = torch.minimum(keep, torch.where(top_p < 1, nucleus, size)).clamp(min=1)
    return torch.zeros_like(mass).scatter(1, order, values.masked_fill(rank >= keep.unsqueeze(1), 0))


def key_heads(config: PretrainedConfig) -> int:
    return getattr(config, "num_key_value_heads", None) or config.num_attention_heads


def head_size(config: PretrainedConfig) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
