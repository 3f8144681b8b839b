"""Whether programs stay within the tensors that a kernel was given. Runs in simulated runners."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np


class MemoryFault(RuntimeError):
    """A program loads or stores outside of every tensor that the kernel was given."""


class Storage(Protocol):
    """The memory behind a tensor: where it begins, its bytes, and those of an element."""

    name: str
    base: int
    size: int
    element: int


def fault(storages: Sequence[Storage], address: int, stored: bool) -> MemoryFault:
    """What is wrong with a load or store at an address that is in none of the tensors."""
    verb = "store" if stored else "load"
    if not storages:
        return MemoryFault(f"{verb} through a pointer although the kernel was given no tensor")
    near = min(storages, key=lambda s: max(s.base - address, address - s.base - s.size + 1))
    index, size = (address - near.base) // near.element, near.size // near.element
    why = "an offset that int32 cannot hold?" if 0 <= index + 2**32 < size else "mask missing?"
    return MemoryFault(f"{verb} outside of every tensor: element {index} of `{near.name}`, which has {size} ({why})")


class WithoutData:
    """A tensor that has no data: only where it would lie."""

    def __init__(self, name: str, tensor: Any):
        self.name, self.element = name, tensor.element_size()
        self.base = tensor.data_ptr() - tensor.storage_offset() * self.element
        self.size = tensor.untyped_storage().nbytes()


class Bounds:
    """Checks one program that runs without data, as long as it does nothing that follows from data.

    Args:
        tensors: those that the kernel was given.
    """

    def __init__(self, tensors: Iterable[tuple[str, Any]]):
        self._storages = [WithoutData(*tensor) for tensor in tensors]
        self.certain = True
        """Whether no number was loaded, compared or made an integer on which addresses and masks may depend."""

    def check(self, addresses: np.ndarray, width: int, stored: bool) -> None:
        """Checks the accesses of `width` bytes each at these addresses (uint64), of which there is one at least.

        Raises:
            MemoryFault.
        """
        least, most = int(addresses.min()), int(addresses.max())
        if any(s.base <= least and most + width <= s.base + s.size for s in self._storages):
            return
        outside = np.ones(addresses.shape, bool)
        for s in self._storages:
            offsets = addresses - np.uint64(s.base)
            outside &= offsets >= np.uint64(max(0, s.size - width + 1))
        if outside.any():
            raise fault(self._storages, int(addresses[outside.argmax()]), stored)
