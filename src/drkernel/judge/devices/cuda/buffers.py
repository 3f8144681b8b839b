"""An examiner's memory, and blocks of calls: the reference's, which run here, and what runners say of theirs."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from drkernel.judge.boundary.call_areas import CallAreas
from drkernel.judge.boundary.cuda import recorder
from drkernel.judge.boundary.cuda.calls import TimedCalls
from drkernel.judge.boundary.cuda.device_memory import DeviceArea
from drkernel.judge.boundary.framing import ProtocolViolation

GATED_S = 0.1
"""A forward that waits for the device never finishes enqueueing: after this long the word is written anyway."""


class Forged(Exception):
    """What a runner claims of its times cannot be."""


@dataclass
class Block:
    """What one block of calls took, in microseconds."""

    forward: list[float]
    """Each call, by the events of the process that ran it."""
    copy: list[float]
    """Copying out each call's outputs."""
    flush: list[float]
    """Emptying the cache before each call."""
    whole: float
    """From the first flush's start to the last copy's end, by the same events."""
    wall: float
    """By the trusted clock, from the release to the answer."""
    calls: list[dict[str, Any]]
    """Where each call's outputs lie."""


def block_of(claims: dict[str, Any], wall: float) -> Block:
    """The block that an untrusted answer describes."""
    try:
        forward, copy, flush = ([_positive(us) for us in claims[f"{key}_us"]] for key in ("forward", "copy", "flush"))
        whole, calls = _positive(claims["whole_us"]), claims["calls"]
        if not len(forward) == len(copy) == len(flush) == len(calls):
            raise ValueError
        for call in calls:
            if not isinstance(call["tensors"], list):
                raise ValueError
            _ = call["outputs"], [fact["slot"] for fact in call["tensors"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProtocolViolation("times described wrongly") from error
    if whole < 0.98 * sum(forward) - 2:
        raise Forged("its calls took longer, by its own events, than all of them together")
    return Block(forward, copy, flush, whole, wall, calls)


def _positive(text: Any) -> float:
    value = float.fromhex(text)
    if not 0.05 < value < 1e9:
        raise ValueError(text)
    return value


class DeviceBuffers:
    """The memory of one examiner: what it shares with runners, and what it keeps to itself in the same layout.

    Args:
        size: bytes of each of the four areas to begin with; `require` makes them larger.
    """

    def __init__(self, size: int):
        self.host_word = torch.zeros(1, dtype=torch.int32, device="cpu").pin_memory()
        self.overhead_us = 60.0
        """Usual difference between the trusted clock and the events of an honest block."""
        self.empty_us = recorder.empty_span()
        self._word, self._watchdog = 0, _Watchdog(self.host_word)
        four = areas(size)
        self.local = TimedCalls(CallAreas(*four[2:]), self.host_word.data_ptr(), {})
        self._take(four)

    def _take(self, four: list[DeviceArea]) -> None:
        self.shared_in, self.shared_out, self.own_in, self.own_out = self._areas = four
        self.local.areas = CallAreas(self.own_in, self.own_out)
        self.handles = [[area.share().hex(), area.size] for area in (self.shared_in, self.shared_out)]

    def require(self, bytes_per_call: int) -> None:
        """Makes room for one call's inputs or outputs; runners must map the areas anew then."""
        if 2 * bytes_per_call + 2**20 > self.own_in.size:
            before = self._areas
            self._take(areas(2 * bytes_per_call + 2**24))
            for area in before:
                area.close()

    def next_word(self, count: int) -> int:
        """The first of so many words that nobody has waited for; what waits for one goes on at any later one, too."""
        self._word += count
        return self._word - count + 1

    def local_block(self, tree: Any, slots: list, train: bool, ahead: bool) -> Block:
        """A block of the reference, in this process; `ahead`: enqueued before the device may start."""
        number = len(tree["list"])
        word = self.next_word(number)
        last = word + number - 1
        enqueue = functools.partial(self.local.enqueue, 0, tree, slots, train, 0, word, recorded=False)
        self.own_out.clear()
        if not ahead:
            self.host_word.fill_(last)
            start = time.perf_counter()
            enqueue()
        else:
            with self._watchdog.guarding(last):
                enqueue()
            start = time.perf_counter()
            self.host_word.fill_(last)
        torch.cuda.synchronize()
        return block_of(self.local.report(), 1e6 * (time.perf_counter() - start))

    @property
    def hung(self) -> bool:
        """Whether the last block that was enqueued ahead could not be: the watchdog had to let it start."""
        return self._watchdog.fired


def areas(size: int) -> list[DeviceArea]:
    """Four of them, or none where the device's memory gives out: torch.OutOfMemoryError."""
    made: list[DeviceArea] = []
    try:
        for _ in range(4):
            made.append(DeviceArea.make(size))
    except torch.OutOfMemoryError:
        for area in made:
            area.close()
        raise
    return made


class _Watchdog:
    """Writes the word when enqueueing takes too long: a forward may wait for the device, or CUDA load a kernel."""

    def __init__(self, word: torch.Tensor):
        self.fired = False
        self._word, self._value, self._until = word, 0, math.inf
        threading.Thread(target=self._watch, daemon=True).start()

    @contextlib.contextmanager
    def guarding(self, value: int) -> Iterator[None]:
        self.fired, self._value, self._until = False, value, time.monotonic() + GATED_S
        try:
            yield
        finally:
            self._until = math.inf

    def _watch(self) -> None:
        while True:
            time.sleep(GATED_S / 4)
            if time.monotonic() > self._until:
                self._word.fill_(self._value)
                self.fired, self._until = True, math.inf
