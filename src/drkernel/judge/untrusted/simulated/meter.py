"""Counts what one kernel launch does: bytes per tensor, arithmetic, products, and the work of simulating it.

Runs in simulated runners: the interpreter's builder tells a `Meter` of each operation.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from drkernel.judge.boundary.aten import distinct_elements
from drkernel.judge.boundary.op_trace import Math, Row
from drkernel.judge.untrusted.simulated.batches import Batch, grid_of
from drkernel.judge.untrusted.simulated.bounds import fault
from drkernel.judge.untrusted.simulated.races import DataRace, Overlap, Programs, Readers, Writers

SECTOR_BITS = 5
"""The L2 cache moves sectors of 32 bytes: a program that touches 4 bytes of each costs eight times its bytes."""

_FEW_VIEWS = 4
"""Tensors of one size that a kernel may be given as views of one memory: queries, keys and values."""

_WORD = 4
"""Bytes of an element of a block. Of 16-bit tensors a program may take two blocks without a loop: halves of a row."""

WORK_PER_STEP = 2000
"""Work of one interpreted operation beyond its elements: its overhead in Python. A unit takes 3 to 10 ns."""


class WorkBudgetExceeded(RuntimeError):
    """The launch needs more simulated work than one call may cost. Unlike a timeout it is deterministic."""


class Region:
    """The storage behind one or more tensor arguments, and which of its elements were touched."""

    def __init__(self, name: str, tensor: Any, addresses: int):
        storage = tensor.untyped_storage()
        self.name = name
        self._memory = storage.data_ptr()
        self.base = self._memory + addresses
        self.size = storage.nbytes()
        self.element = tensor.element_size()
        self.shift = self.element.bit_length() - 1
        self.numel = distinct_elements(tensor)
        self.views = {tensor.storage_offset(): self.numel}
        """Elements of each view that the kernel was given."""
        self._views: dict[np.dtype, np.ndarray] = {}
        self._last: tuple[np.ndarray, np.ndarray] | None = None
        """Of each sector: the program that loaded it last, and what it had moved by then."""
        self.touched: dict[bool, np.ndarray] = {}
        self.total = {False: 0, True: 0}
        self._writers: Writers | None = None
        self._readers: Readers | None = None
        self.overlap: Overlap | None = None
        """Which of the elements that were stored last other programs store, too, without having waited for them."""

    def touch(self, offsets: np.ndarray, stored: bool) -> None:
        """Takes note of the elements at these byte offsets."""
        if stored not in self.touched:
            self.touched[stored] = np.zeros(-(-self.size // self.element), dtype=bool)
        self.touched[stored][self._elements(offsets)] = True

    def stored_by(self, offsets: np.ndarray, programs: Programs, mask: np.ndarray, inside: Any = ...) -> None:
        """Takes note of stores at these byte offsets, of the unmasked lanes that are `inside` of this storage.

        Raises:
            DataRace: if another program of the launch has loaded there.
        """
        elements, writers = self._elements(offsets), programs.of_lanes(mask)[inside]
        if self._readers is not None and not programs.waited:
            self._expect_none(self._readers.foreign(elements, writers), elements, "stores", "loads")
        if self._writers is None:
            self._writers = Writers(-(-self.size // self.element))
        overlap = self._writers.store(elements, writers)
        self.overlap = None if programs.waited else overlap

    def expect_same(self, offsets: np.ndarray, different: np.ndarray) -> None:
        """Raises DataRace where one of the stores at these byte offsets has a different number from another's."""
        self._expect_none(different, self._elements(offsets), "stores", "gives another number")

    def take_back(self, offsets: np.ndarray | None) -> None:
        """The stores at these byte offsets, or all, have not been made."""
        if self._writers is not None:
            self._writers.take_back(... if offsets is None else self._elements(offsets))

    def _elements(self, offsets: np.ndarray) -> np.ndarray:
        """The elements at byte offsets, as indices that numpy need not convert."""
        return (offsets >> np.uint64(self.shift)).view(np.int64)

    def loaded_by(self, offsets: np.ndarray, programs: Programs, mask: np.ndarray, inside: Any = ...) -> None:
        """Takes note of loads; arguments as those of `stored_by`.

        Raises:
            DataRace: if another program of the launch has stored there.
        """
        elements, readers = self._elements(offsets), programs.of_lanes(mask)[inside]
        if self._writers is not None:
            if not programs.waited:
                foreign = self._writers.foreign(elements, readers, programs.together)
                self._expect_none(foreign, elements, "loads", "stores")
            untouched = self._writers.untouched(elements)
            elements, readers = elements[untouched], readers[untouched]
        if self._readers is None:
            self._readers = Readers(-(-self.size // self.element))
        self._readers.load(elements, readers)

    def _expect_none(self, foreign: np.ndarray, elements: np.ndarray, does: str, did: str) -> None:
        if foreign.any():
            raise DataRace(
                f"{does} element {elements[foreign.argmax()]} of `{self.name}`, which another program of this launch "
                f"{did}; programs have no order unless they wait for each other by atomic operations"
            )

    def reload(self, offsets: np.ndarray, programs: np.ndarray, moved: float) -> np.ndarray:
        """Takes note of loads. Returns, for each of a sector that the same program loaded last, what was moved since.

        Args:
            offsets: in bytes, of each lane.
            programs: the number of each lane's program.
            moved: bytes that a program has moved so far.
        """
        sectors = offsets >> np.uint64(SECTOR_BITS)
        if self._last is None:
            count = (self.size >> SECTOR_BITS) + 1
            self._last = np.zeros(count, np.int64), np.zeros(count)
        loader, loaded_at = self._last
        since = moved - loaded_at[sectors[loader[sectors] == programs]]
        loader[sectors], loaded_at[sectors] = programs, moved
        return since

    def extent(self, touched: int) -> int:
        """Elements of the tensor that traffic grows with: of all memory behind it where a kernel leaves its views, or
        where these are so many that their size says nothing."""
        of_views = min(sum(self.views.values()), _FEW_VIEWS * self.numel) * self.element
        return self.numel if touched <= of_views else self.size // self.element

    def elements(self, kind: np.dtype, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The storage as an array of `kind` and the indices of byte offsets into it; None where not aligned."""
        if kind.itemsize != self.element or (self.element > 1 and (offsets & np.uint64(self.element - 1)).any()):
            return None
        if kind not in self._views:
            memory = (ctypes.c_char * (self.size // self.element * self.element)).from_address(self._memory)
            self._views[kind] = np.frombuffer(memory, dtype=kind)
        return self._views[kind], self._elements(offsets)


_SLOWEST_FIRST: tuple[Math, ...] = ("fp32", "fp64", "tf32x3", "tf32", "half", "byte")


class NoLaunch:
    """In the place of a meter where no kernel runs: outside of kernels, the language computes nothing."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("a function of triton.language that is called outside of a kernel")


class Meter:
    """Counters of one launch.

    Args:
        addresses: what the addresses that kernels see have in addition to those of the memory.
    """

    blind = False

    def __init__(self, row: Row, arguments: list[tuple[str, Any]], budget: float, addresses: int = 0):
        self.row = row
        self.budget = budget
        self.addresses = np.uint64(addresses)
        self.work = 0.0
        self.largest = 1
        self.computes_products = False
        self.reused = self.reach = 0.0
        self.programs = Programs(np.zeros(1, np.int64))
        self._batches: list[Batch] = []
        self._batch = Batch(1)
        self._runs = np.zeros(1, np.int64)
        """Numbers of the programs of this batch; a program that is run again has another one."""
        self._moved = 0.0
        """Bytes that a program has moved so far."""
        regions: dict[int, Region] = {}
        for name, tensor in arguments:
            region = Region(name, tensor, addresses)
            known = regions.setdefault(region.base, region)
            known.numel = max(known.numel, region.numel)
            known.views |= region.views
        self.regions = [r for r in regions.values() if r.size]

    def snapshot(self) -> tuple:
        """The counters that a batch of programs may take back; `work` is spent either way."""
        return self.reused, self.reach, [dict(r.total) for r in self.regions]

    def restore(self, counters: tuple) -> None:
        self.reused, self.reach, totals = counters
        self._batches.pop()
        for region, total in zip(self.regions, totals, strict=True):
            region.total = dict(total)

    def guess(self) -> None:
        """Called for a number that decides what a program does, and that only data can tell."""

    def atomic(self, addresses: np.ndarray) -> None:
        """Called for atomic operations at these addresses."""
        self.guess()
        self._batch.atomics.append(addresses)

    def take_back(self, place: tuple[Region, np.ndarray, bool] | None) -> None:
        """A store that `access` has returned this for has not been made."""
        for region, offsets in [place[:2]] if place else [(region, None) for region in self.regions]:
            region.take_back(offsets)

    def begin(self, places: np.ndarray) -> None:
        """Starts a batch of programs, at these places [P] of the grid. They have loaded nothing yet."""
        self.programs = Programs(places)
        self._runs = self._runs[-1] + 1 + np.arange(len(places))[:, None]
        self._batch = Batch(len(places))
        self._batches.append(self._batch)

    def step(self, size: int, repeat: float, issued: float = 0.0) -> None:
        """Counts one operation on `size` elements, of `repeat` instructions each over all programs that do it alike;
        each program issues so many, for whole blocks.

        Raises:
            WorkBudgetExceeded.
        """
        self.work += size + WORK_PER_STEP
        if size > 1:
            self._batch.arithmetic += size * repeat
            self._batch.issued += issued * len(self._runs)
        if self.work > self.budget:
            raise WorkBudgetExceeded(
                f"more than {self.budget:.0f} units of simulated work: too many programs, or an endless loop"
            )

    def long(self, lanes: int, cost: float) -> None:
        """Counts an operation on so many 64-bit integers, of `cost` instructions each where these are no addresses."""
        self._batch.long += np.array([lanes, lanes * cost])

    def exchange(self) -> None:
        """Counts an operation that waits for other threads: a reduction, a scan."""
        self._batch.exchanges += len(self._runs)

    def product(self, flops: float, filled: np.ndarray | None, math: Math, tile: int, k_major: bool) -> None:
        """Counts a tl.dot. Products of several kinds in one kernel count as the slowest of them.

        Args:
            filled: the proportion of `flops` on data, by program; None where it is not known.
            tile, k_major: as in Row.
        """
        first = not (self.computes_products or self.row.flops)
        self.row.tile = tile if first else min(tile, self.row.tile)
        self.row.k_major = k_major and (first or self.row.k_major)
        self.computes_products = True
        if first or _SLOWEST_FIRST.index(math) < _SLOWEST_FIRST.index(self.row.math):
            self.row.math = math
        self._batch.dense_flops += flops
        if filled is None:
            self._batch.padded_flops += flops
        else:
            self._batch.flops += flops * float(filled.mean())

    def access(
        self, pointers: np.ndarray, mask: np.ndarray, width: int, stored: bool, repeat: int
    ) -> tuple[Region, np.ndarray, bool] | None:
        """Checks and counts one load or store of `width` bytes each. pointers: uint64 [p, ...], mask: bool alike.

        Returns the tensor that all unmasked pointers belong to, their byte offsets in it (flat) and whether none is
        masked; None where nothing is accessed or several tensors are.
        """
        self.step(pointers.size, 0)
        self._batch.accesses += len(pointers) * repeat
        self._batch.elements += pointers.size * repeat
        self.largest = max(self.largest, pointers.size // len(pointers))
        complete = bool(mask.all())
        valid = pointers.ravel() if complete else pointers[mask]
        if not valid.size:
            return None
        self._batch.access(mask, stored)
        moved = _cached_bytes(pointers, mask, complete, width) * repeat
        first = next((r for r in self.regions if r.base <= int(valid[0]) < r.base + r.size), None)
        if first is not None:
            offsets = valid - np.uint64(first.base)
            if int(offsets.max()) + width <= first.size:
                self._touch(first, offsets, mask, stored)
                first.total[stored] += moved
                self._advance(first, offsets, mask, moved, stored)
                return first, offsets, complete
        self._scattered(valid, mask, width, stored, moved)
        return None

    def _touch(
        self, region: Region, offsets: np.ndarray, mask: np.ndarray, stored: bool, inside: np.ndarray | Any = ...
    ) -> None:
        """Takes note of the elements that the unmasked lanes `inside` of a tensor access, and by which programs."""
        region.touch(offsets, stored)
        (region.stored_by if stored else region.loaded_by)(offsets, self.programs, mask, inside)

    def _advance(self, region: Region, offsets: np.ndarray, mask: np.ndarray, moved: int, stored: bool) -> None:
        """Counts what the programs move, and how much they moved since they loaded what they load again."""
        self._moved += moved / len(self._runs)
        if not stored:
            programs = self._runs[-1:] if len(mask) == 1 else self._runs
            lanes = np.broadcast_to(programs.reshape(-1, *(1,) * (mask.ndim - 1)), mask.shape)
            since = region.reload(offsets, lanes[mask], self._moved)
            self.reused += moved * len(since) / len(offsets)
            self.reach += moved * float(since.sum()) / len(offsets)

    def _scattered(self, valid: np.ndarray, mask: np.ndarray, width: int, stored: bool, moved: int) -> None:
        """One access to several tensors, or outside of all."""
        known = np.zeros(valid.shape, bool)
        for region in self.regions:
            offsets = valid - np.uint64(region.base)
            inside = offsets < np.uint64(max(0, region.size - width + 1))
            self._touch(region, offsets[inside], mask, stored, inside)
            region.total[stored] += int(moved * inside.mean())
            known |= inside
        if not known.all():
            raise fault(self.regions, int(valid[known.argmin()]), stored)

    def finish(self, programs: int) -> None:
        """Adds the launch, of so many programs, to its row.

        Masked lanes do arithmetic too, but they are far more frequent in a small task than in the full one. So work is
        counted for the unmasked share of each program's lanes alone: of two dimensions in a load or store, of three in
        a product.
        """
        for batch in self._batches:
            share = batch.unmasked_share()
            self.row.lanes += batch.lanes
            self.row.accesses += round(batch.accesses * float((share > 0).mean()))
            self.row.exchanges += batch.exchanges * float((share > 0).mean())
            self.row.arithmetic += batch.instructions() * float(share.mean())
            self.row.dense_arithmetic += batch.instructions() * float((share > 0).mean())
            self.row.issued += batch.issued * float((share > 0).mean())
            self.row.blocks += batch.blocks()
            self.row.flops += batch.flops + batch.padded_flops * float((share**1.5).mean())
            self.row.dense_flops += batch.dense_flops * float((share > 0).mean())
        if addresses := [part for batch in self._batches for part in batch.atomics]:
            _, counts = np.unique(np.concatenate(addresses), return_counts=True)
            self.row.contention = max(self.row.contention, int(counts.max(initial=0)))
        self.row.reused += self.reused
        self.row.reach += self.reach
        self.row.block = max(self.row.block, self.largest)
        largest, most, read, touched_most = 1, 0, 1, 0
        added = False
        for region in self.regions:
            added = added or len(region.touched) == 2
            for stored, touched in region.touched.items():
                unique = min(int(np.count_nonzero(touched)) * region.element, region.size)
                most, touched_most = max((most, touched_most), (unique, region.extent(unique)))
                self.row.add_traffic(region.extent(unique), unique, max(region.total[stored], unique), stored)
                read = max(read, region.extent(unique))
                if stored:
                    largest = max(largest, region.extent(unique))
                    self.row.output_numel = max(self.row.output_numel, unique // region.element)
        if added and not self.computes_products:  # programs that add to one another divide what they read
            largest = read
        loops = most > _WORD * self.largest * programs
        self.row.add_grid(grid_of(self._batches, programs, largest, loops, touched_most))


_NONE = np.uint64(2**64 - 1)


def _cached_bytes(pointers: np.ndarray, mask: np.ndarray, complete: bool, width: int) -> int:
    """Bytes that the L2 cache serves for one access of each program, summed over the programs.

    A sector whose neighbours are not touched costs all of its 32 bytes. A run of sectors costs the bytes asked for,
    so that a row that starts between two sectors costs no more in a small task than in the full one. Where these bytes
    have gaps (every fourth element), the run costs its sectors, less one for the two that it may only begin and end in.
    """
    sectors = (pointers >> np.uint64(SECTOR_BITS)).reshape(len(pointers), -1)
    if not complete:
        sectors = np.where(mask.reshape(sectors.shape), sectors, _NONE)
    if (sectors[:, 1:] < sectors[:, :-1]).any():
        sectors = np.sort(sectors, axis=1)
    steps = np.diff(sectors, axis=1)
    masked = sectors[:, 1:] == _NONE
    gaps, neighbours = (steps > 1) & ~masked, (steps == 1) & ~masked
    rows = sectors[:, 0] != _NONE
    runs = int(np.count_nonzero(rows)) + int(np.count_nonzero(gaps))
    touched = runs + int(np.count_nonzero(neighbours))
    alone = runs - _runs_of_several(neighbours, gaps) if neighbours.any() else runs
    asked = width * (pointers.size if complete else int(np.count_nonzero(mask)))
    sector = 1 << SECTOR_BITS
    dense = min(max(0, asked - sector * alone), sector * (touched - alone))
    sparse = sector * (touched - runs)
    return sector * alone + (sparse if sparse > dense + sector * (runs - alone) else dense)


def _runs_of_several(neighbours: np.ndarray, gaps: np.ndarray) -> int:
    """How many runs (stretches of a row between gaps) have several sectors."""
    run = np.cumsum(gaps, axis=1) + np.arange(len(gaps))[:, None] * (gaps.shape[1] + 1)
    return len(np.unique(run[neighbours])) if gaps.any() else int(np.count_nonzero(neighbours.any(axis=1)))
