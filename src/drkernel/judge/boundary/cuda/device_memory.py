"""Device memory that the examiner owns and a runner maps: inputs one way, outputs the other, and a word to wait on."""

from __future__ import annotations

import torch
from torch import Tensor

from drkernel.judge.boundary.cuda import driver
from drkernel.judge.boundary.shared_tensors import DTYPES, Area, Slot

WORD = 512
"""Bytes at the start of every area, before the tensors; the first four are the word that a stream waits on."""
_TARGETS = 256


class DeviceArea(Area):
    """An area in device memory: made by `make`, opened elsewhere by `open`. Tensors lie on 512-byte boundaries."""

    align, device = 512, "cuda"

    def __init__(self, address: int, size: int, owned: bool):
        super().__init__(size, WORD)
        self.address, self._owned = address, owned
        self._targets: dict[Slot, Tensor] = {}

    @classmethod
    def make(cls, size: int) -> DeviceArea:
        area = cls(driver.allocate(size), size, owned=True)
        area.bytes(0, size).fill_(0xFF)
        area.bytes(0, WORD).zero_()
        return area

    @classmethod
    def open(cls, handle: bytes, size: int) -> DeviceArea:
        return cls(driver.open_shared(handle), size, owned=False)

    def share(self) -> bytes:
        return driver.share(self.address)

    def release(self, word: int) -> None:
        """Writes the word, for which streams of another process wait."""
        driver.release(self.address, word)

    def settle(self) -> None:
        torch.cuda.synchronize()

    def close(self) -> None:
        (driver.free if self._owned else driver.close_shared)(self.address)

    def _blank(self, start: int, count: int) -> None:
        driver.fill(self.address + start, 0xFF, count)

    def _target(self, slot: Slot) -> Tensor:
        """Kept, since the clock's calls lay the same tensors out again and again."""
        if slot not in self._targets:
            if len(self._targets) == _TARGETS:
                self._targets.clear()
            self._targets[slot] = self.view(slot)
        return self._targets[slot]

    def snapshot(self) -> Tensor:
        return self._words().clone()

    def same(self, snapshot: Tensor) -> bool:
        return torch.equal(self._words(), snapshot)

    def _words(self) -> Tensor:
        """int64: comparing them makes an eighth of the Booleans that comparing bytes makes."""
        return self._flat("int64", -(-(self.top - WORD) // 8), WORD)

    def _flat(self, dtype: str, count: int, offset: int) -> Tensor:
        kind = DTYPES[dtype]
        return driver.tensor(self.address + offset, count * kind.itemsize).view(kind)
