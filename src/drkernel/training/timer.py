"""How many seconds each part of a step took."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Timer:
    """`with timer("update"): ...` adds the seconds of the block to `timer.seconds["update"]`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
