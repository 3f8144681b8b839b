"""What a runner does instead of a right reply, as exceptions of the examiner."""

from __future__ import annotations

from typing import Any

import torch

from drkernel.judge.boundary.framing import DeadlineExceeded, PeerClosed, ProtocolViolation
from drkernel.judge.boundary.parsing import parse
from drkernel.judge.boundary.shared_tensors import NotSerializable
from drkernel.judge.trusted.processes import replies
from drkernel.types import DrKernelError

_MAX_KIND, _MAX_MESSAGE = 80, 2000
_WITH_A_MEANING = (ProtocolViolation, PeerClosed, DeadlineExceeded, DrKernelError, MemoryError, torch.OutOfMemoryError)


class Failed(Exception):
    """The submission raised an error while a request was answered."""

    def __init__(self, kind: str, message: str, line: int | None):
        super().__init__(message)
        self.kind, self.message, self.line = kind, message, line


class Unanswered(Failed):
    """What ended a dry run may come from tensors without data; if that is `unclear`, or from the submission."""

    def __init__(self, failure: Failed, unclear: bool = False, read: str = ""):
        super().__init__(failure.kind, failure.message, failure.line)
        self.unclear, self.read = unclear, read


class Missing(Exception):
    """The submission launched kernels that have not been compiled; see cuda.kernel_cache for their descriptions."""

    def __init__(self, kernels: list[dict[str, Any]]):
        super().__init__("kernels that have not been compiled")
        self.kernels = kernels


class reading:  # noqa: N801  # `with reading("outputs"):`, and no generator, which would keep what it catches
    """For everything that is done with what a runner sent. If that fails, the runner has sent what it must not send,
    and the judge has not failed.

    Raises:
        ProtocolViolation: for any error but those that have another meaning.
    """

    def __init__(self, what: str):
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, _WITH_A_MEANING):
            return
        if "DefaultCPUAllocator" in str(error):
            return  # what is copied is bounded, so the memory is missing for another reason
        known = isinstance(error, NotSerializable)
        detail = str(error) if known else f"{self._what} that cannot be read: {type(error).__name__}: {error}"
        raise ProtocolViolation(detail[:300]) from None


def failure_of(error: Any) -> Failed | Missing:
    """The exception for the `error` of an untrusted reply.

    Raises:
        ProtocolViolation: it is not well formed.
    """
    parsed = parse(error, replies.Error)
    return Missing(parsed.missing) if parsed.missing else failed(parsed)


def failed(parsed: replies.Error) -> Failed:
    text = "".join(c if c.isprintable() else " " for c in parsed.message[:_MAX_MESSAGE])
    return Failed(parsed.type[:_MAX_KIND] if parsed.type.isidentifier() else "Error", text, parsed.line)
