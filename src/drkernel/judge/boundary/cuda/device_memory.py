"""Device memory that the examiner owns and a runner maps: inputs one way, outputs the other, and a semaphore.

The semaphore is a 32-bit value at the start of an area. A stream of one process waits until it reaches a value, which
the other process writes.
"""

from __future__ import annotations

import functools
import os

import torch
from torch import Tensor

from drkernel.judge.boundary.cuda import driver
from drkernel.judge.boundary.shared_tensors import DTYPES, Area, Slot

HEADER = 512
"""Bytes at the start of every area, before the tensors; the first four are the semaphore."""
_MAX_TARGETS = 256
_HASHED, _CHUNK = 2**29, 2**22
"""Bytes from which a snapshot is a hash, and numbers that are hashed together."""


@functools.cache
def _factors() -> Tensor:
    """Secret random numbers: int64 [_CHUNK]."""
    secret = torch.Generator("cuda").manual_seed(int.from_bytes(os.urandom(6), "big"))
    return torch.randint(-(2**63), 2**63 - 1, (_CHUNK,), generator=secret, device="cuda", dtype=torch.int64)


def _hash(numbers: Tensor) -> Tensor:
    """A number for each chunk of int64 [n]: the sum of all, each times a secret factor, modulo 2^64."""
    return torch.stack([(part * _factors()[: len(part)]).sum() for part in numbers.split(_CHUNK)])


class DeviceArea(Area):
    """An area in device memory: made by `make`, opened elsewhere by `open`. Tensors lie on 512-byte boundaries."""

    align, device = 512, "cuda"

    def __init__(self, address: int, size: int, owned: bool):
        super().__init__(size, HEADER)
        self.address, self._owned = address, owned
        self._targets: dict[Slot, Tensor] = {}

    @classmethod
    def make(cls, size: int) -> DeviceArea:
        """New memory, filled with 0xFF (NaN in every floating type) behind a header of zeros.

        Raises:
            torch.OutOfMemoryError.
        """
        area = cls(driver.allocate(size), size, owned=True)
        area.bytes(0, size).fill_(0xFF)
        area.bytes(0, HEADER).zero_()
        return area

    @classmethod
    def open(cls, handle: bytes, size: int) -> DeviceArea:
        """The memory of another process, from what its `ipc_handle` returned."""
        return cls(driver.open_ipc_handle(handle), size, owned=False)

    def ipc_handle(self) -> bytes:
        """By which another process can open this area."""
        return driver.ipc_handle(self.address)

    def set_semaphore(self, value: int) -> None:
        """Makes the current stream write the semaphore, for which streams of another process wait."""
        driver.write_value(self.address, value)

    def begin_at(self, place: int) -> None:
        """Tensors begin so many times `align` bytes behind the header from now on."""
        self._start = HEADER + place * self.align

    def settle(self) -> None:
        torch.cuda.synchronize()

    def close(self) -> None:
        (driver.free if self._owned else driver.close_ipc_handle)(self.address)

    def _blank(self, start: int, count: int) -> None:
        driver.fill(self.address + start, 0xFF, count)

    def _target(self, slot: Slot) -> Tensor:
        """The view of a slot. It is kept, since timed calls lay the same tensors out again and again."""
        if slot not in self._targets:
            if len(self._targets) == _MAX_TARGETS:
                self._targets.clear()
            self._targets[slot] = self.view(slot)
        return self._targets[slot]

    def snapshot(self) -> Tensor:
        """A private copy of all bytes in use; where these are many, a hash of them that only this process can know."""
        used = self._in_use()
        return used.clone() if used.nbytes < _HASHED else _hash(used)

    def same(self, snapshot: Tensor) -> bool:
        used = self._in_use()
        return torch.equal(used if used.nbytes < _HASHED else _hash(used), snapshot)

    def _in_use(self) -> Tensor:
        """All bytes in use, as int64: comparing them makes an eighth of the Booleans that comparing bytes makes."""
        return self._flat("int64", -(-(self.top - HEADER) // 8), HEADER)

    def _flat(self, dtype: str, count: int, offset: int) -> Tensor:
        kind = DTYPES[dtype]
        return driver.tensor(self.address + offset, count * kind.itemsize).view(kind)
