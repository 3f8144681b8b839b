"""One call at a time between an examiner and a runner: four 32-bit words in host memory that both see.

A runner's stream waits for ACTIVATE, runs a tiny kernel, writes ACTIVE, waits for GO, runs the forward, copies its
outputs and writes DONE. The examiner writes ACTIVATE and GO, and reads ACTIVE and DONE. So it sees on its own clock
when the outputs are there. Each handshake has a value of its own. Values grow. A stream waits for at least its value,
the examiner for exactly this.

Whether the examiner waits for ACTIVE makes two kinds of calls:

    switching    ACTIVATE and GO come together, right after the examiner's own context has copied the inputs. The GPU
                 then switches contexts, which takes about 150 us. The runner can do nothing between the appearance
                 of the inputs and GO, because its context is not on the GPU.
    resident     GO comes once the runner's context is on the GPU. The clock is then exact to about a microsecond.
"""

from __future__ import annotations

import ctypes
import random
import time

from drkernel.judge.boundary.cuda import driver
from drkernel.judge.boundary.shared_tensors import HostArea

ACTIVATE, ACTIVE, GO, DONE = 0, 64, 128, 192
"""Offsets of the words in bytes, each in a cache line of its own."""
_BYTES = 4096
_LATE_SHARE, _LATE_S, _VERY_LATE_SHARE, _VERY_LATE_S = 0.3, 1e-3, 0.03, 1e-2
"""How often `release` comes late and very late, and by how much at most."""


def words_of(area: HostArea) -> ctypes.Array:
    """The memory of an area as 32-bit words."""
    return (ctypes.c_uint32 * (_BYTES // 4)).from_buffer(area.memory)


def register(area: HostArea) -> int:
    """The device's address of an area, in a runner."""
    return driver.register_host(ctypes.addressof(words_of(area)), _BYTES)


class Handshake:
    """The examiner's side."""

    def __init__(self, area: HostArea):
        self._words, self._value, self._random = words_of(area), 0, random.SystemRandom()

    def next_value(self) -> int:
        """The first value that nobody has waited for."""
        self._value += 1
        return self._value

    def write(self, *words: int) -> None:
        """Writes the newest value to words, one after the other."""
        for word in words:
            self._words[word // 4] = self._value

    def wait(self, word: int, deadline: float) -> bool:
        """Waits until the runner has written the newest value and no other, at most until `deadline` on
        time.monotonic()'s clock. Whether it has."""
        words, place, value = self._words, word // 4, self._value
        while True:
            for _ in range(1000):
                if words[place] == value:
                    return True
            if time.monotonic() > deadline:
                return False

    def release(self) -> None:
        """Lets an examined call begin, sometimes late. So a call whose stream still waits need not be a timed one."""
        chance = self._random.random()
        if chance < _LATE_SHARE:
            time.sleep(self._random.random() * (_VERY_LATE_S if chance < _VERY_LATE_SHARE else _LATE_S))
        self.write(ACTIVATE, GO)
