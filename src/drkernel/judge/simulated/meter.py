"""Counts what one kernel launch does: bytes per tensor, arithmetic, products, and the work of simulating it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .ledger import Row

SECTOR_BITS = 5
"""The L2 cache moves 32-byte sectors: a program that touches 4 bytes of each costs eight times its bytes."""

WORK_PER_STEP = 2000
"""Work of one interpreted operation beyond its elements: its Python overhead, in units of about 10 ns."""


class WorkBudgetExceeded(RuntimeError):
    """The launch needs more simulated work than one call may cost; deterministic, unlike a timeout."""


class MemoryFault(RuntimeError):
    """A program loads or stores outside of every tensor that the kernel was given."""


class Region:
    """The storage behind one or more tensor arguments, and which of its elements were touched."""

    def __init__(self, name: str, tensor: Any):
        storage = tensor.untyped_storage()
        self.name = name
        self.base = storage.data_ptr()
        self.size = storage.nbytes()
        self.element = tensor.element_size()
        self.shift = self.element.bit_length() - 1
        self.numel = distinct_elements(tensor)
        self.tensor = tensor
        self._views: dict[np.dtype, np.ndarray] = {}
        self.touched: dict[bool, np.ndarray] = {}
        self.total = {False: 0, True: 0}

    def touch(self, offsets: np.ndarray, stored: bool) -> None:
        if stored not in self.touched:
            self.touched[stored] = np.zeros(-(-self.size // self.element), dtype=bool)
        self.touched[stored][offsets >> np.uint64(self.shift)] = True

    def elements(self, kind: np.dtype, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The storage as an array of `kind` and the indices of byte offsets into it; None where not aligned."""
        if kind.itemsize != self.element or (self.element > 1 and (offsets & np.uint64(self.element - 1)).any()):
            return None
        if kind not in self._views:
            memory = (ctypes.c_char * (self.size // self.element * self.element)).from_address(self.base)
            self._views[kind] = np.frombuffer(memory, dtype=kind)
        return self._views[kind], (offsets >> np.uint64(self.shift)).view(np.int64)


class Meter:
    """Counters of one launch. `programs` run at once: arrays have a leading axis of that length, or of length 1."""

    def __init__(self, row: Row, arguments: list[tuple[str, Any]], budget: float):
        self.row = row
        self.budget = budget
        self.work = 0.0
        self.programs = 1
        self.largest = 1
        self.arithmetic = 0
        self.accesses = 0
        self.flops = 0
        regions: dict[int, Region] = {}
        for name, tensor in arguments:
            region = Region(name, tensor)
            known = regions.setdefault(region.base, region)
            known.numel = max(known.numel, region.numel)
        self.regions = [r for r in regions.values() if r.size]

    def snapshot(self) -> tuple:
        """The counters that a batch of programs may take back; `work` is spent either way."""
        return self.arithmetic, self.accesses, self.flops, [dict(r.total) for r in self.regions]

    def restore(self, counters: tuple) -> None:
        self.arithmetic, self.accesses, self.flops, totals = counters
        for region, total in zip(self.regions, totals, strict=True):
            region.total = dict(total)

    def step(self, size: int, repeat: int) -> None:
        """One operation on `size` elements, done by `repeat` programs alike."""
        self.work += size + WORK_PER_STEP
        if size > 1:
            self.arithmetic += size * repeat
        if self.work > self.budget:
            raise WorkBudgetExceeded(
                f"more than {self.budget:.0f} units of simulated work: too many programs, or an endless loop"
            )

    def access(
        self, pointers: np.ndarray, mask: np.ndarray, stored: bool, repeat: int
    ) -> tuple[Region, np.ndarray, bool] | None:
        """Checks and counts one load or store. pointers: uint64 [p, ...], mask: bool of the same shape.

        Returns the tensor that all unmasked pointers belong to, their byte offsets in it (flat) and whether none is
        masked; None where nothing is accessed or several tensors are.
        """
        self.step(0, repeat)
        self.accesses += len(pointers) * repeat
        self.largest = max(self.largest, pointers.size // len(pointers))
        complete = bool(mask.all())
        valid = pointers.ravel() if complete else pointers[mask]
        if not valid.size:
            return None
        sectors = _sectors(pointers, mask, complete) * repeat << SECTOR_BITS
        first = next((r for r in self.regions if r.base <= int(valid[0]) < r.base + r.size), None)
        if first is not None:
            offsets = valid - np.uint64(first.base)
            if int(offsets.max()) + first.element <= first.size:
                first.touch(offsets, stored)
                first.total[stored] += sectors
                return first, offsets, complete
        self._scattered(valid, stored, sectors)
        return None

    def _scattered(self, valid: np.ndarray, stored: bool, sectors: int) -> None:
        """One access to several tensors, or outside of all."""
        known = np.zeros(valid.shape, bool)
        for region in self.regions:
            offsets = valid - np.uint64(region.base)
            inside = offsets <= np.uint64(region.size - region.element)
            region.touch(offsets[inside], stored)
            region.total[stored] += int(sectors * inside.mean())
            known |= inside
        if not known.all():
            raise MemoryFault(self._fault(int(valid[known.argmin()]), stored))

    def _fault(self, address: int, stored: bool) -> str:
        verb = "store" if stored else "load"
        if not self.regions:
            return f"{verb} through a pointer although the kernel was given no tensor"
        near = min(self.regions, key=lambda r: max(r.base - address, address - r.base - r.size + 1))
        index = (address - near.base) // near.element
        size = near.size // near.element
        return f"{verb} outside of every tensor: element {index} of `{near.name}`, which has {size} (mask missing?)"

    def finish(self) -> None:
        """Adds the launch to its row."""
        self.row.arithmetic += self.arithmetic
        self.row.accesses += self.accesses
        self.row.flops += self.flops
        self.row.block = max(self.row.block, self.largest)
        for region in self.regions:
            for stored, touched in region.touched.items():
                unique = min(int(np.count_nonzero(touched)) * region.element, region.size)
                self.row.add_traffic(region.numel, unique, max(region.total[stored], unique), stored)
                if stored:
                    self.row.output_numel = max(self.row.output_numel, unique // region.element)


def distinct_elements(tensor: Any) -> int:
    """Elements at distinct addresses: expanded dimensions count once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= 1 if stride == 0 and size else size
    return count


_NONE = np.uint64(2**64 - 1)


def _sectors(pointers: np.ndarray, mask: np.ndarray, complete: bool) -> int:
    """Sectors that each program touches in this access, summed over the programs."""
    sectors = (pointers >> np.uint64(SECTOR_BITS)).reshape(len(pointers), -1)
    if not complete:
        sectors = np.where(mask.reshape(sectors.shape), sectors, _NONE)
    if sectors.shape[1] == 1:
        return int(np.count_nonzero(sectors != _NONE))
    later, earlier = sectors[:, 1:], sectors[:, :-1]
    if (later < earlier).any():
        sectors = np.sort(sectors, axis=1)
        later, earlier = sectors[:, 1:], sectors[:, :-1]
    return int(np.count_nonzero((later != earlier) & (later != _NONE)) + np.count_nonzero(sectors[:, 0] != _NONE))
