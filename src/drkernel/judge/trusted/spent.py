"""What the trusted work of a process took, by kind: the runs of a reference in fp64 and with other rounding, and the
steps of a preparation. So a verdict can say where its time went.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

import torch

from drkernel.tasks import module

_seconds: defaultdict[str, float] = defaultdict(float)


@contextlib.contextmanager
def spent(kind: str) -> Iterator[None]:
    """Counts the time of this block; on a GPU, until the device is done. Blocks may lie in one another."""
    began = time.monotonic()
    try:
        yield
    finally:
        if module.DEVICE == "cuda":
            torch.cuda.synchronize()
        _seconds[kind] += time.monotonic() - began


def taken() -> dict[str, float]:
    """Milliseconds by kind since the last call of this."""
    found = {kind: round(1e3 * seconds, 2) for kind, seconds in _seconds.items()}
    _seconds.clear()
    return found
