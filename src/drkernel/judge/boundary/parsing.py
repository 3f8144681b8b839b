"""JSON from another process, read as typed structs: what does not fit is refused whole."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.boundary.shared_tensors import MISFITS

T = TypeVar("T")


def parse(data: Any, kind: type[T]) -> T:
    """Decoded JSON as a value of this type. Nothing is coerced, and a struct with `forbid_unknown_fields` takes no
    other key.

    Raises:
        ProtocolViolation: it does not fit; names the place in the message and the type expected there.
    """
    try:
        return msgspec.convert(data, kind, strict=True)
    except MISFITS as error:
        raise ProtocolViolation(str(error)) from error
