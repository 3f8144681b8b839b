"""How many products attention takes: where a causal mask leaves out half of them, kernels skip these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def attention_flops(args: tuple, result: Any) -> float:
    """Operations of both products of attention without a mask. Of `args`, query, key and value come first."""
    query, key, value = args[:3]
    batch, heads, rows, width = query.shape
    return 2.0 * batch * heads * rows * key.shape[-2] * (width + value.shape[-1])


def needed_share(given: Mapping[str, Any]) -> float:
    """The proportion of an operator's products that its causal mask leaves, if it has one; else 1.

    Args:
        given: the operator's arguments by name.
    """
    if not given.get("is_causal"):
        return 1.0
    rows, columns = (given[name].shape[-2] for name in ("query", "key"))
    square = min(rows, columns)
    return (square * (square + 1) / 2 + (rows - square) * columns) / (rows * columns)
