"""The replies of runners as typed structs, which `parsing.parse` reads. Nothing that a reply says is believed."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import msgspec

from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.boundary.shared_tensors import Slot

MAX_ITEMS = 10_000
"""Entries of any list in a reply."""
_MAX_LINE = 10**6


Items = msgspec.Meta(max_length=MAX_ITEMS)


class Error(msgspec.Struct, forbid_unknown_fields=True):
    """Why a request failed."""

    type: str
    """Of the exception."""
    message: str
    line: Annotated[int, msgspec.Meta(gt=0, lt=_MAX_LINE)] | None = None
    """Of the submission's source."""
    missing: Annotated[list[dict[str, Any]], Items] = msgspec.field(default_factory=list)
    """Descriptions of kernels that were launched and have not been compiled, see cuda.kernel_cache."""


class Done(msgspec.Struct, forbid_unknown_fields=True):
    """The reply to a request that returns nothing."""


class Weights(msgspec.Struct, forbid_unknown_fields=True):
    """The reply to `build`."""

    weights: Annotated[list[tuple[str, Slot]], Items]
    """The model's parameters and buffers by name."""


class Output(msgspec.Struct, forbid_unknown_fields=True):
    """One tensor that a forward returned."""

    slot: Slot
    expanded: bool
    """Whether it repeated values with stride 0."""
    shares: bool
    """Whether it lay in an input's memory."""


class Launched(msgspec.Struct, forbid_unknown_fields=True):
    """The reply to `dry`."""

    trace: str
    """For OpTrace.from_json."""
    ended: Error | None = None
    """What ended it, where that may come from tensors without data."""
    unclear: bool = False
    """Whether that may be the submission's own error as well."""
    read: Literal["", "answers", "numbers"] = ""
    """What the host has read of tensors that have no data."""


class CallResult(msgspec.Struct, forbid_unknown_fields=True):
    """The reply to `call`."""

    outputs: Any
    """The JSON form of what forward returned, for shared_tensors.decode; its tensors are indices in `tensors`."""
    tensors: Annotated[list[Output], Items]
    trace: str
    """For OpTrace.from_json."""
    seen: Annotated[list[Slot], Items]
    """What ATen operators computed, where launches were left out."""
    overwrites: bool = False
    """Whether the outputs of the call before, which are still referred to, are no longer what they were."""


class Traces(msgspec.Struct, forbid_unknown_fields=True):
    """The reply to `enqueue_gated`: what each call launched, for OpTrace.from_json."""

    traces: Annotated[list[str], Items]


class Profile(msgspec.Struct, forbid_unknown_fields=True):
    """The reply to `profile`."""

    rows: Annotated[list[tuple[str, bool, int, str]], Items]
    """Name, whether it is a Triton kernel, calls, and microseconds as float.hex writes them."""


class Joined(msgspec.Struct, forbid_unknown_fields=True):
    """The reply to `joins`."""

    joined: bool


def hexadecimal(text: str, low: float = -math.inf, high: float = math.inf) -> float:
    """A number as float.hex writes it.

    Raises:
        ProtocolViolation: it is none, or not in [low, high).
    """
    try:
        value = float.fromhex(text)
    except (ValueError, OverflowError) as error:
        raise ProtocolViolation("a number described wrongly") from error
    if not low <= value < high:
        raise ProtocolViolation(f"a number out of range: {value}")
    return value
