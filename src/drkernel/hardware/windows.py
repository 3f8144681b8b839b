"""Operators with windows: which share of the input they read, and what cuDNN computes besides the products."""

from __future__ import annotations

import functools
import math
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
COLUMNS, ALIGNED, LEAST_TERMS = 32, 4, 64
"""Of a convolution: channels of the output that cuDNN computes at a time, multiples of input channels, and terms of a
sum below which it gets no faster."""
WIDE, WIDE_GAIN = 128, 1.25
"""Multiples of channels of the output that are so much faster."""
FULL_TURNED = 147
"""Channels of a transposed convolution's input with which cuDNN is at full speed."""
COUNTED = 2**14
"""Places of all windows along a dimension, up to which they are counted one by one."""
FULL_GROUP, DEPTHWISE = 54, 8.7
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

    Measured on an H200 (260 shapes, without TF32). Channels of the output are padded to COLUMNS, those of the input to
    ALIGNED. A transposed one with strides or three dimensions is slower where it has few input channels; another one is
    a convolution with its weight turned. In groups it is slower in proportion to the channels of a group's input,
    depthwise ones no more than by a factor.
    """
    name, given = func._overloadpacket.__name__, _given(func, args, kwargs)
    if name not in (*CONVOLUTIONS, "convolution"):
        return 1.0
    weight, groups, turned = given["weight"], given.get("groups", 1), _turned(name, given)
    if name == "conv_tbc":
        return slowness(weight.shape[2], weight.shape[1], weight.shape[0])
    made, channels = weight.shape[1 if turned else 0], weight.shape[0] // groups if turned else weight.shape[1]
    is_slow = weight.dim() > 4 or max(_each(given.get("stride", 1), weight.dim() - 2)) > 1
    return slowness(made, channels, math.prod(weight.shape[2:]), groups, turned, is_slow)


def slowness(
    made: int, channels: int, window: int, groups: int = 1, turned: bool = False, is_slow: bool = False
) -> float:
    """The same by sizes.

    Args:
        made, channels: of the output, and of a group's input.
        window: its places.
        turned: whether it is transposed.
        is_slow: whether it has strides or three dimensions, which transposed ones take ill.
    """
    if groups > 1 and not (turned and channels > 1):
        return max(1.0, min(DEPTHWISE, FULL_GROUP / max(channels, 1)))
    if turned and (groups > 1 or is_slow):
        return max(1.0, FULL_TURNED / max(channels, 1))
    terms = max(math.ceil(channels / ALIGNED) * ALIGNED * window, LEAST_TERMS)
    columns = math.ceil(made / COLUMNS) * COLUMNS / (1.0 if made % WIDE else WIDE_GAIN)
    share = columns * terms / max(1, made * channels * window)
    return min(share, DEPTHWISE) if channels == 1 else share


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
