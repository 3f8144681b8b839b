"""Operators with windows: which share of the input they read, and what cuDNN computes besides the products."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

POOLS = ("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d")
CONVOLUTIONS = frozenset(
    {
        "conv_tbc", "slow_conv_dilated2d", "slow_conv_dilated3d", "slow_conv3d_forward", "slow_conv_transpose2d",
        "slow_conv_transpose3d", "mkldnn_convolution", "_slow_conv2d_forward",
    }
)  # fmt: skip
"""Convolutions by other names than `convolution`, of which torch counts nothing, or fails to."""
FULL_COLUMNS, FULL_TURNED = 48, 220
"""Channels of the output, and of the input of a transposed convolution, with which cuDNN is at full speed."""
COUNTED = 2**14
"""Places of all windows along a dimension, up to which they are counted one by one."""
FULL_GROUP, DEPTHWISE = 80, 13.0
"""Channels of a group's input with which it is, and how much slower it is where a group has one."""


def share_read(func: Any, args: tuple, kwargs: Mapping[str, Any]) -> float:
    """At least so much of the first operand is read, in (0, 1]; 1 for operators without windows."""
    name = func._overloadpacket.__name__
    if name not in (*POOLS, "convolution"):
        return 1.0
    given = _given(func, args, kwargs)
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


def lanes(func: Any, args: tuple, kwargs: Mapping[str, Any]) -> float:
    """By how much a convolution in fp32 is slower than one with many channels: as if cuDNN filled lanes with nothing.

    Measured on an H200 (44 shapes): one of few columns is slower in proportion, and so is a transposed one of few input
    channels where it has strides or three dimensions. Another transposed one is a convolution with its weight turned.
    In groups it is slower in proportion to the channels of a group's input, depthwise ones no more than by a factor.
    """
    name, given = func._overloadpacket.__name__, _given(func, args, kwargs)
    if name not in (*CONVOLUTIONS, "convolution"):
        return 1.0
    weight, groups = given["weight"], given.get("groups", 1)
    if groups > 1:
        turned = _turned(name, given)
        channels = max(weight.shape[0] // groups if turned else weight.shape[1], 1)
        return max(1.0, FULL_TURNED / channels if turned and channels > 1 else min(DEPTHWISE, FULL_GROUP / channels))
    if name == "conv_tbc":
        return max(1.0, FULL_COLUMNS / max(weight.shape[2], 1))
    if not _turned(name, given):
        return max(1.0, FULL_COLUMNS / max(weight.shape[0], 1))
    is_slow = weight.dim() > 4 or max(_each(given.get("stride", 1), weight.dim() - 2)) > 1
    full, channels = (FULL_TURNED, weight.shape[0]) if is_slow else (FULL_COLUMNS, weight.shape[1])
    return max(1.0, full / max(channels, 1))


def terms(func: Any, args: tuple, kwargs: Mapping[str, Any], result: Any) -> float:
    """Operations of one of CONVOLUTIONS: each number of the weight of a channel, for each number that is made (or read,
    transposed)."""
    name, given = func._overloadpacket.__name__, _given(func, args, kwargs)
    weight = given["weight"]
    number = weight.shape[0] * weight.shape[1] if name == "conv_tbc" else weight[0].numel()
    made = result[0] if isinstance(result, (tuple, list)) else result
    return 2.0 * number * (given["self"] if _turned(name, given) else made).numel()


def _turned(name: str, given: Mapping[str, Any]) -> bool:
    return bool(given.get("transposed")) or "transpose" in name


def _given(func: Any, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return dict(zip([argument.name for argument in func._schema.arguments], args, strict=False)) | dict(kwargs)


@functools.lru_cache(maxsize=4096)
def touched(size: int, kernel: int, stride: int, padding: int = 0, dilation: int = 1) -> float:
    """How much of a dimension is in some window; of a long one, where the ends do not count, at least so much.

    >>> touched(12, 3, 3), touched(14, 4, 4), touched(12, 1, 2), touched(12, 2, 2, dilation=2)
    (1.0, 0.8571428571428571, 0.5, 0.5)
    """
    number = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    if 0 < number * kernel <= COUNTED:
        starts = range(-padding, number * stride - padding, stride)
        places = {start + place * dilation for start in starts for place in range(kernel)}
        return sum(0 <= place < size for place in places) / size
    classes = len({place * dilation % stride for place in range(kernel)})
    if classes == stride:
        return 1.0
    inside = max(1, number - 2 * -(-padding // stride))  # the others may lie in the padding
    return min(1.0, classes * inside / size)


def _each(values: int | Sequence[int], rank: int) -> list[int]:
    """One value per dimension."""
    found = [values] if isinstance(values, int) else list(values)
    return found * rank if len(found) == 1 else found
