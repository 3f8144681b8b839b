"""Finds races between the programs of one launch. Runs in simulated runners.

Programs of a batch run statement by statement, and batches run one after the other. So a program finds here what others
stored before it, and not what they store after it; on a GPU it may be otherwise. A program that looks at what an atomic
operation returned may have waited for others: what it loads and stores from then on is not checked. Programs may store
the same number at one place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

_NOBODY, _SEVERAL = 0, np.iinfo(np.int32).min


class DataRace(RuntimeError):
    """A program loads or overwrites what another one of its launch stores, and nothing says which comes first."""


class Overlap(NamedTuple):
    """Of some elements that are stored together, whether another program has stored them before, or stores them at
    once and comes last."""

    earlier: np.ndarray
    at_once: np.ndarray


def differ(some: np.ndarray, others: np.ndarray, bits: int) -> np.ndarray:
    """Whether numbers are not the same up to rounding in so many bits: sums of other batches are rounded otherwise."""
    if some.dtype.kind != "f":
        return some != others
    return ~np.isclose(some, others, 0.02 if bits > 8 else 0.3, 1e-6, equal_nan=True)


class Programs:
    """The programs of a batch, by numbers that tell them from all others of the launch.

    Args:
        places: int [P], the place of each in the grid. A program that is run again has the same number.
    """

    def __init__(self, places: np.ndarray):
        self._each = 1 + places.astype(np.int32)
        self.together = int(self._each[0] if len(places) == 1 else -self._each[0])
        """Stands for all of them where they do the same."""
        self.waited = False
        """Whether they have looked at what an atomic operation or a volatile load returned."""

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """A block with an atomic operation, which is no race with others."""
        before, self.waited = self.waited, True
        yield
        self.waited = before

    def of_lanes(self, mask: np.ndarray) -> np.ndarray:
        """The number of each unmasked lane's program. mask: [P, ...], or [1, ...] where all programs do the same."""
        each = self._each if len(mask) == len(self._each) else np.array([self.together], np.int32)
        return np.broadcast_to(each.reshape(-1, *(1,) * (mask.ndim - 1)), mask.shape)[mask]


class Writers:
    """Which program of the launch stored each element of a tensor last.

    Batches that are taken back leave their numbers here. What they did is a possible order of the same launch, so a
    race with them is a race of the launch.
    """

    def __init__(self, numel: int):
        self._last = np.full(numel, _NOBODY, np.int32)
        self._taken_back: np.ndarray | None = None
        """Of each element, whether the memory does not have what its last writer stored."""

    def store(self, elements: np.ndarray, writers: np.ndarray) -> Overlap | None:
        """Takes note of the program that stores each of the elements.

        Returns: which of them other programs have stored, too; None where none has.
        """
        before = self._last[elements]
        self._last[elements] = writers
        earlier = (before != _NOBODY) & (before != writers)
        at_once = self._last[elements] != writers
        if self._taken_back is not None:
            earlier &= ~self._taken_back[elements]
            self._taken_back[elements] = False
        return Overlap(earlier, at_once) if earlier.any() or at_once.any() else None

    def take_back(self, elements: np.ndarray | Any) -> None:
        """These were not stored after all."""
        if self._taken_back is None:
            self._taken_back = np.zeros(len(self._last), bool)
        self._taken_back[elements] = True

    def foreign(self, elements: np.ndarray, readers: np.ndarray, together: int) -> np.ndarray:
        """Of each element, whether its last writer is neither its reader nor the reader's whole batch."""
        last = self._last[elements]
        return (last != _NOBODY) & (last != readers) & (last != together)

    def untouched(self, elements: np.ndarray) -> np.ndarray:
        """Of each element, whether no program has stored it."""
        return self._last[elements] == _NOBODY


class Readers:
    """Which program of the launch loaded each element of a tensor before any stored it."""

    def __init__(self, numel: int):
        self._who = np.full(numel, _NOBODY, np.int32)

    def load(self, elements: np.ndarray, readers: np.ndarray) -> None:
        before = self._who[elements]
        self._who[elements] = readers  # of several programs that load an element at once, one stands here
        several = (self._who[elements] != readers) | ((before != _NOBODY) & (before != readers))
        self._who[elements[several]] = _SEVERAL

    def foreign(self, elements: np.ndarray, writers: np.ndarray) -> np.ndarray:
        """Of each element, whether another program than its writer has loaded it."""
        who = self._who[elements]
        return (who != _NOBODY) & (who != writers)
