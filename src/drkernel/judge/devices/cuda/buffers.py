"""The device memory of one examiner, and blocks of calls: the reference's, and what runners report of theirs.

The examiner runs the reference's blocks itself, with the code that a runner uses for the submission's.
"""

from __future__ import annotations

import contextlib
import functools
import math
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import torch
from torch import nn

from drkernel.judge.boundary.call_areas import CallAreas
from drkernel.judge.boundary.cuda import recorder
from drkernel.judge.boundary.cuda.calls import TimedCalls
from drkernel.judge.boundary.cuda.device_memory import HEADER, DeviceArea
from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.boundary.parsing import parse
from drkernel.judge.boundary.shared_tensors import DTYPES, Slot
from drkernel.judge.trusted.sizes.footprint import Footprint

GATED_S = 0.1
"""A forward that waits for the device never finishes enqueueing: after this long the semaphore is set anyway."""

_MARGIN, _PLACES = 2**20, 2**10
"""Bytes of an area beside its tensors, and places, 512 bytes apart, at which they may begin."""

HexFloat = Annotated[str, msgspec.Meta(max_length=40)]
"""As float.hex writes it, so that no digit is lost."""


class TensorReport(msgspec.Struct, frozen=True):
    """One of a call's outputs."""

    slot: list[Any]
    """As Slot.parse takes it."""


class CallReport(msgspec.Struct, frozen=True):
    """What one call returned."""

    outputs: Any
    """The JSON form of the value, around its tensors."""
    tensors: list[TensorReport]

    @property
    def slots(self) -> list[list[Any]]:
        return [tensor.slot for tensor in self.tensors]


class BlockReport(msgspec.Struct, frozen=True):
    """A runner's message about a block: microseconds of each call by its events, and where outputs lie."""

    forward_us: list[HexFloat]
    copy_us: list[HexFloat]
    flush_us: list[HexFloat]
    calls: list[CallReport]


@dataclass
class Block:
    """What one block of calls took, in microseconds."""

    forward: list[float]
    """Each call, by the events of the process that ran it."""
    copy: list[float]
    """Copying out each call's outputs."""
    flush: list[float]
    """Flushing the L2 cache before each call."""
    calls: list[CallReport]
    """Where each call's outputs lie."""


@dataclass(frozen=True)
class Usual:
    """What a single call of some kind takes beside what a call of a block takes, in microseconds."""

    overhead_us: float
    """By the examiner's clock, beside the forward and the copy that the runner reports."""
    start_us: float = 0.0
    """Of the forward that the runner reports: it begins on an idle device, and ends when all streams have ended."""

    def facts(self) -> dict[str, float]:
        """For the verdict's evidence: what this examiner measured when it started."""
        return {"overhead_us": round(self.overhead_us, 2), "start_us": round(self.start_us, 2)}


def block_of(report: Any) -> Block:
    """The block that an untrusted report describes.

    Raises:
        ProtocolViolation: it is no BlockReport, or has an absurd time.
    """
    told = parse(report, BlockReport)
    forward, copy, flush = (list(map(_microseconds, texts)) for texts in (told.forward_us, told.copy_us, told.flush_us))
    if not len(forward) == len(copy) == len(flush) == len(told.calls):
        raise ProtocolViolation("times of another number of calls")
    return Block(forward, copy, flush, told.calls)


def _microseconds(text: str) -> float:
    try:
        value = float.fromhex(text)
    except (ValueError, OverflowError) as error:
        raise ProtocolViolation(f"expected a hexadecimal number, found {text!r}") from error
    if not 0.05 < value < 1e9:
        raise ProtocolViolation(f"expected 0.05 to 1e9 microseconds, found {value}")
    return value


class DeviceBuffers:
    """The memory of one examiner: what it shares with runners, and what it keeps to itself in the same layout.

    There are two layouts. Usually four areas of one size hold the calls of a block. For large calls, each area has the
    size of one call, and the examiner has its own inputs in no area.

    Args:
        size: bytes of each of the four areas.
        large_from: bytes of a call from which it is a large one.
    """

    def __init__(self, size: int, large_from: int):
        self.large_from = large_from
        self.host_semaphore = torch.zeros(1, dtype=torch.int32, device="cpu").pin_memory()
        """For the reference's blocks. The submission's wait for the one in `shared_in`."""
        self.usual: dict[str, Usual] = {}
        """What honest single calls take beside those of blocks, by kind."""
        self.flush_kernel = ""
        """The name of the kernel that flushes the L2 cache before each call of a block."""
        self.empty_us = recorder.empty_span()
        self._value, self._watchdog = 0, _Watchdog(self.host_semaphore)
        self._size, self._sizes = size, (size,) * 4
        four = areas(self._sizes)
        self.local = TimedCalls(CallAreas(*four[2:]), self.host_semaphore.data_ptr(), {})
        self._take(four)

    def _take(self, four: list[DeviceArea]) -> None:
        self.shared_in, self.shared_out, self.own_in, self.own_out = self._areas = tuple(four)
        self.local.areas = CallAreas(self.own_in, self.own_out)
        self.handles = [[area.ipc_handle().hex(), area.size] for area in (self.shared_in, self.shared_out)]

    @property
    def large(self) -> bool:
        """Whether the areas are those for large calls."""
        return self._sizes != (self._size,) * 4

    def fit(self, footprint: Footprint) -> None:
        """Makes room for a task's calls and weights, and gives back what is not needed; runners must map the areas anew
        then.

        Raises:
            torch.OutOfMemoryError: there are no areas then, until another call of this.
        """
        if self.fits(footprint):
            return
        sizes = self._sizes_for(footprint)
        for area in self._areas:
            area.close()
        self._areas, self._sizes = (), (0, 0, 0, 0)
        torch.cuda.empty_cache()
        self._take(areas(sizes))
        self._sizes = sizes

    def fits(self, footprint: Footprint) -> bool:
        """Whether the areas are already those for a task."""
        return self._sizes_for(footprint) == self._sizes

    def _sizes_for(self, footprint: Footprint) -> tuple[int, int, int, int]:
        into = max(footprint.inputs, footprint.weights) + _MARGIN
        out = max(footprint.outputs, footprint.weights) + _MARGIN
        if footprint.large or 2 * max(into, out) > self._size:
            return (into, out, _MARGIN, footprint.outputs + _MARGIN)
        return (self._size,) * 4

    def shift(self) -> None:
        """Makes the inputs of the next large call lie elsewhere: a submission may not rely on one address."""
        self.shared_in.begin_at(secrets.randbelow(_PLACES))

    def publish(self, inputs: list) -> None:
        """Makes the inputs of a large call, which were planned, appear in the runner's memory."""
        self.shared_in.lay([inputs])

    def next_values(self, count: int) -> int:
        """The first of so many semaphore values that nobody has waited for. They only grow, and a wait is for at least
        its value, so that setting the last lets all go on."""
        self._value += count
        return self._value - count + 1

    def flush(self) -> None:
        """Makes the L2 cache hold nothing of value, by a copy: no kernel of this process runs."""
        self.local.flush_by_copy()

    def local_block(
        self, tree: Any, slots: list, train: bool, seed: int, ahead: bool, given: list | None = None
    ) -> Block:
        """A block of the reference, in this process.

        Args:
            ahead: enqueue it before the device may start.
            given: see TimedCalls.enqueue.
        """
        number = len(tree["list"])
        value = self.next_values(number)
        last = value + number - 1
        enqueue = functools.partial(self.local.enqueue, 0, tree, slots, train, seed, value, recorded=False, given=given)
        self.own_out.clear()
        if not ahead:
            self.host_semaphore.fill_(last)
            enqueue()
        else:
            with self._watchdog.guarding(last):
                enqueue()
            self.host_semaphore.fill_(last)
        torch.cuda.synchronize()
        return block_of(self.local.report())

    def waits(self, model: nn.Module, train: bool, inputs: list) -> bool:
        """Whether the reference waits for the device in its forward: then a block could not be enqueued ahead, and the
        watchdog had to let it start."""
        tree, slots = (self.shared_in.plan if self.large else self.own_in.lay)([inputs])
        self.local.models = {0: model}
        for ahead in (False, True):
            self.local_block(tree, slots, train, 0, ahead, [inputs] if self.large else None)
        return self._watchdog.fired


def view_of_copy(area: torch.Tensor, slot: Slot) -> torch.Tensor:
    """A tensor in a copy of an area's bytes, which begin behind its header."""
    if not slot.extent:
        return torch.empty_strided(slot.shape, slot.stride, dtype=DTYPES[slot.dtype], device=area.device)
    start = slot.offset - HEADER
    return area[start : start + slot.nbytes].view(DTYPES[slot.dtype]).as_strided(slot.shape, slot.stride)


def areas(sizes: Sequence[int]) -> list[DeviceArea]:
    """Areas of these sizes, or none where the device's memory gives out: torch.OutOfMemoryError."""
    made: list[DeviceArea] = []
    try:
        for size in sizes:
            made.append(DeviceArea.make(size))
    except torch.OutOfMemoryError:
        for area in made:
            area.close()
        raise
    return made


class _Watchdog:
    """Sets the semaphore when enqueueing takes too long: a forward may wait for the device, or CUDA load a kernel."""

    def __init__(self, semaphore: torch.Tensor):
        self.fired = False
        self._semaphore, self._value, self._until = semaphore, 0, math.inf
        threading.Thread(target=self._watch, daemon=True).start()

    @contextlib.contextmanager
    def guarding(self, value: int) -> Iterator[None]:
        """A block that may take GATED_S before the semaphore is set to this value."""
        self.fired, self._value, self._until = False, value, time.monotonic() + GATED_S
        try:
            yield
        finally:
            self._until = math.inf

    def _watch(self) -> None:
        while True:
            time.sleep(GATED_S / 4)
            if time.monotonic() > self._until:
                self._semaphore.fill_(self._value)
                self.fired, self._until = True, math.inf
