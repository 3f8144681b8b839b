"""How much arithmetic an update needs, whoever does it and however: what model FLOPs utilisation (MFU) is measured by.

Counted is what the mathematics of one forward and backward needs (2 and 4 operations per weight and token):

    body        6 x matrix weights of the blocks x tokens
    head        6 x hidden x vocabulary x sampled tokens: other tokens have no loss, so the head is not applied to them
    attention   6 x layers x heads x head_dim x sum over rows of L (L + 1): 4 operations in the forward and 8 in the
                backward for each pair of a token and one that it sees, of which there are L (L + 1) / 2

With LoRA frozen weights need no gradient of their own: 4 in place of 6 for body and head, and 6 per token for each
parameter of the adapters.

Not counted: embedding look-ups, norms, the softmax, anything done twice (recomputed activations, flash attention's
scores in the backward), padding. The common 6 N T with the head on all tokens and full attention is larger: it would
make the same speed look like a higher utilisation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig

PEAK = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12}
"""Dense bfloat16 operations per second of a GPU, as its maker states them; H100 alone is the SXM module."""


def peak_of(name: str) -> float | None:
    """The peak of a GPU by the name that its driver gives it; None where it is not known.

    >>> peak_of("NVIDIA H100 80GB HBM3") == PEAK["H100"], peak_of("NVIDIA H100 PCIe") == 756e12, peak_of("CPU")
    (True, True, None)
    """
    return next((peak for known, peak in PEAK.items() if known in name), None)


def update_flops(config: PretrainedConfig, lengths: Iterable[int], sampled: int, adapters: int | None = None) -> float:
    """Operations of one forward and backward of a decoder with a gated MLP over packed rows.

    config: a transformers config (Qwen3's names); lengths: tokens of each row; sampled: tokens with a loss.
    adapters: parameters of LoRA's adapters; None: all weights train.

    >>> from types import SimpleNamespace
    >>> tiny = SimpleNamespace(num_hidden_layers=1, hidden_size=4, intermediate_size=8, vocab_size=10, head_dim=2,
    ...                        num_attention_heads=2, num_key_value_heads=1)

    Queries and output 2 x 4 x 4, keys and values 2 x 4 x 2, MLP 3 x 4 x 8: 144 weights; head 40; heads x head_dim 4.

    >>> update_flops(tiny, [3, 1], sampled=2) == 6 * 144 * 4 + 6 * 40 * 2 + 6 * 1 * 4 * (3 * 4 + 1 * 2)
    True
    >>> update_flops(tiny, [3, 1], 2, adapters=5) == 4 * 144 * 4 + 4 * 40 * 2 + 6 * 4 * (3 * 4 + 1 * 2) + 6 * 5 * 4
    True
    """
    lengths = list(lengths)
    frozen = adapters is not None
    queries = config.num_attention_heads * config.head_dim
    attended = sum(length * (length + 1) for length in lengths)
    body = (4 if frozen else 6) * block_weights(config) * config.num_hidden_layers * sum(lengths)
    body += 6 * (adapters or 0) * sum(lengths)
    head = (4 if frozen else 6) * config.hidden_size * config.vocab_size * sampled
    return float(body + head + 6 * config.num_hidden_layers * queries * attended)


def block_weights(config: PretrainedConfig) -> int:
    """Weights of one block's matrices."""
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    return config.hidden_size * (2 * queries + 2 * keys + 3 * config.intermediate_size)
