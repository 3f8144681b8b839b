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
_marks: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
"""On a GPU: the beginning and the end of each block on the current stream."""


@contextlib.contextmanager
def spent(kind: str) -> Iterator[None]:
    """Counts the time of this block; on a GPU, by its events, so that nobody waits. Blocks may lie in one another."""
    if module.DEVICE == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        try:
            yield
        finally:
            end.record()
            _marks.append((kind, begin, end))
        return
    began = time.monotonic()
    try:
        yield
    finally:
        _seconds[kind] += time.monotonic() - began


def taken() -> dict[str, float]:
    """Milliseconds by kind since the last call of this."""
    marks = list(_marks)
    _marks.clear()
    for kind, begin, end in marks:
        end.synchronize()
        _seconds[kind] += begin.elapsed_time(end) / 1e3
    found = {kind: round(1e3 * seconds, 2) for kind, seconds in _seconds.items()}
    _seconds.clear()
    return found
