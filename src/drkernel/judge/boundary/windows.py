"""Which share of its input an operator with windows reads: a stride may pass elements over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

POOLS = ("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d")


def share_read(func: Any, args: tuple, kwargs: Mapping[str, Any]) -> float:
    """At least so much of the first operand is read, in (0, 1]; 1 for operators without windows."""
    name = func._overloadpacket.__name__
    if name not in (*POOLS, "convolution"):
        return 1.0
    given = dict(zip([argument.name for argument in func._schema.arguments], args, strict=False)) | dict(kwargs)
    if given.get("transposed"):
        return 1.0
    tensor = given["input"] if name == "convolution" else given["self"]
    kernel = given["weight"].shape[2:] if name == "convolution" else given["kernel_size"]
    rank, share = len(tensor.shape[2:]) if name == "convolution" else int(name.partition("pool")[2][0]), 1.0
    sizes = tensor.shape[-rank:]
    windows = zip(
        sizes,
        *(_each(values, rank) for values in (kernel, given.get("stride") or kernel)),
        *(_each(given.get(option) or default, rank) for option, default in (("padding", 0), ("dilation", 1))),
        strict=True,
    )
    for size, width, stride, padding, dilation in windows:
        share *= touched(size, width, stride, padding, dilation)
    return share


def touched(size: int, kernel: int, stride: int, padding: int = 0, dilation: int = 1) -> float:
    """At least so much of a dimension is in some window.

    >>> touched(12, 3, 3), touched(12, 1, 2), touched(12, 2, 2, dilation=2)
    (1.0, 0.5, 0.4166666666666667)
    """
    classes = len({place * dilation % stride for place in range(kernel)})
    if classes == stride:
        return 1.0
    number = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    inside = max(1, number - 2 * -(-padding // stride))  # the others may lie in the padding
    return min(1.0, classes * inside / size)


def _each(values: int | Sequence[int], rank: int) -> list[int]:
    """One value per dimension."""
    found = [values] if isinstance(values, int) else list(values)
    return found * rank if len(found) == 1 else found
