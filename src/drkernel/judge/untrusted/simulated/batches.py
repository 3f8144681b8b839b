"""What the programs of a launch do, and how evenly. Runs in simulated runners, whose `meter` counts with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drkernel.judge.boundary.op_trace import Grid
from drkernel.judge.untrusted.simulated.costs import ADDRESSES

_UNEVEN = 4
"""A program that does so many times as much as it would if all did their part keeps others waiting."""


class Batch:
    """Counters of programs that run together: what differs among them is counted by program."""

    def __init__(self, programs: int):
        self.accesses = self.exchanges = 0
        self.arithmetic = self.issued = self.flops = self.padded_flops = self.dense_flops = 0.0
        """Sums over the programs. Padded ones are of products of which it is not known how many lanes hold data, dense
        ones of all products with all their lanes."""
        self.elements = 0
        """Lanes of loads and stores, masked ones, too."""
        self.long = np.zeros(2)
        """Lanes of operations on 64-bit integers, and what instructions they take more that compute no address."""
        self.atomics: list[np.ndarray] = []
        """Addresses of atomic operations."""
        self.stores = np.zeros(programs)
        self._touches = np.zeros(programs)
        """Loads and stores, by program."""
        self._unmasked = np.zeros(programs)
        self._squares = np.zeros(programs)
        self._filled = np.zeros(programs)
        """Sum over a program's unmasked lanes of the proportion of unmasked ones in their load or store."""

    def access(self, mask: np.ndarray, stored: bool) -> None:
        """Counts a load or store. mask: [P or 1, ...]."""
        lanes = mask.reshape(len(mask), -1)
        unmasked = np.count_nonzero(lanes, axis=1)
        self._unmasked += unmasked
        self._touches += unmasked > 0
        self.stores += stored * (unmasked > 0)
        self._squares += unmasked.astype(float) ** 2
        self._filled += unmasked * (unmasked / lanes.shape[1])

    def instructions(self) -> float:
        """Arithmetic, with what operations on 64-bit integers take more: those that cannot all compute addresses."""
        lanes, more = self.long
        return self.arithmetic + more * max(0.0, 1.0 - ADDRESSES * self.elements / max(lanes, 1.0))

    def idle(self) -> int:
        """Programs that access nothing."""
        return int(np.count_nonzero(self._unmasked == 0))

    def unmasked_share(self) -> np.ndarray:
        """Of each program's lanes [P], the mean over unmasked ones, so that loads that are almost all masked have no
        weight; 0 where a program accesses nothing, and so does nothing."""
        return self._filled / np.maximum(self._unmasked, 1)

    def blocks(self) -> float:
        """See Row.blocks."""
        return float(np.sum(self._unmasked**2 / np.maximum(self._squares, 1)))

    @property
    def lanes(self) -> float:
        """The lanes of loads and stores that are not masked, of all programs."""
        return float(self._unmasked.sum())

    def work(self) -> np.ndarray:
        """What each program does [WORK, P]; nothing where it accesses nothing."""
        operations = np.full(len(self._touches), (self.instructions() + self.dense_flops) / len(self._touches))
        return np.stack([self._touches, self._unmasked, operations]) * (self._unmasked > 0)


def grid_of(batches: Sequence[Batch], programs: int, stored: int, loops: bool, touched: int) -> Grid:
    """A launch of these batches of programs. Arguments as the fields of Grid."""
    idle = sum(batch.idle() for batch in batches)
    work = np.concatenate([batch.work() for batch in batches], axis=1)
    accesses, lanes, operations = (float(kind) for kind in work.sum(axis=1))
    share, uneven = _share_of_busiest(batches), _unevenness(work)
    light = np.sum(work * (work * _UNEVEN < work.max(axis=1, keepdims=True)), axis=1)
    of_light = float(light[0]), float(light[1]), float(light[2])
    return Grid(programs, stored, loops, 1, idle, share, (accesses, lanes, operations), uneven, of_light, touched)


def _share_of_busiest(batches: Sequence[Batch]) -> float:
    """See Grid.share. A small task may have less work than programs, so that some are idle that would not be in
    the full one; but then none of the others does much more than its part."""
    stores = np.concatenate([batch.stores for batch in batches])
    part = np.ceil(stores.mean())
    return float(stores.max() / stores.sum()) if stores.max() > _UNEVEN * part else 0.0


def _unevenness(work: np.ndarray) -> tuple[float, float, float]:
    """See Grid.uneven. A program that only stores a number works, and shares nothing of what another one does."""
    busy = work[:, work[0] > 0]
    if not busy.size:
        return 1.0, 1.0, 1.0
    times = busy.max(axis=1) / np.maximum(busy.mean(axis=1), 1e-9)
    accesses, lanes, operations = (float(most) if most > _UNEVEN else 1.0 for most in times)
    return accesses, lanes, operations
