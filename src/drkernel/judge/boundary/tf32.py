"""Whether PyTorch's own products of fp32 may be rounded to TF32 on a GPU, in the process that calls this."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from drkernel.types import Precision

T = TypeVar("T")


def allowed_by(precision: Precision) -> bool:
    """Whether a task of this precision allows TF32: then its reference is timed with TF32, too."""
    return precision != "ieee"


def allow(tf32: bool) -> None:
    """Allows it from now on, or forbids it."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32


@contextlib.contextmanager
def allowing(tf32: bool) -> Iterator[None]:
    """Allows it in a block, or forbids it. What was allowed before is allowed afterwards."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    allow(tf32)
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def as_allowed_by(precision: Precision, work: Callable[..., T], *args: Any) -> T:
    """Does work with a reference as a task of this precision allows it."""
    with allowing(allowed_by(precision)):
        return work(*args)
