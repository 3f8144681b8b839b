"""Messages from a process that is not trusted, read as typed structs: whatever does not fit is refused whole."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from drkernel.judge.boundary.framing import ProtocolViolation

T = TypeVar("T")


def parse(data: Any, kind: type[T]) -> T:
    """Decoded JSON as a value of this type; nothing is coerced, and no unknown key is let through by a strict struct.

    Raises:
        ProtocolViolation: it does not fit; names the place in the message and the type expected there.
    """
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        raise ProtocolViolation(str(error)) from error
