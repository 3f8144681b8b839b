"""How many of its lanes a launch uses at sizes that no kernel runs at: some of its programs, on memory without data.

A GPU executes masked lanes as it does others. In a small run many are masked since the data are small, which is no work
at full size; but a kernel may mask most of its lanes at any size. So some programs of the full grid run on tensors
without data, and what they count says which part of the lanes is still masked there. Runs in simulated runners.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from drkernel.judge.boundary.op_trace import STORES_UNKNOWN, Row
from drkernel.judge.untrusted.simulated.bounds import Bounds, MemoryFault
from drkernel.judge.untrusted.simulated.guesses import Guesses
from drkernel.judge.untrusted.simulated.limits import LaunchLimitExceeded
from drkernel.judge.untrusted.simulated.meter import Meter, WorkBudgetExceeded

PROGRAMS, FEWEST = 4, 2
"""Programs of a launch that run, and of these, those that say how many bytes each moves at least."""
BUDGET = 2e7
"""Work (see Meter) of all of them, but for the second, which may take twice the first one's: 0.1 to 0.2 s."""
LAUNCHES = 8
"""Different launches of one kernel of which programs run; more are taken to be like these."""

CERTAIN = (LaunchLimitExceeded, MemoryFault)
"""Errors that do not come from missing data."""

COUNTED = (
    "arithmetic", "dense_arithmetic", "flops", "dense_flops", "accesses", "lanes", "exchanges", "issued", "blocks",
    "moved", "stored", "stored_lanes",
)  # fmt: skip
"""The fields of a row that `work` gives."""
_MOVED, _STORED = COUNTED.index("moved"), slice(-2, None)


class _Blank:
    """In the place of a `meter.Region`: memory that has one number everywhere."""

    overlap = None

    def __init__(self, number: float):
        self._number = number

    def elements(self, kind: np.dtype, count: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full(1, self._number).astype(kind), np.zeros(count, np.int64)


class _BlindMeter(Meter):
    """Counts what programs do that run without data. Whole numbers that they load are 0."""

    blind = True

    def __init__(self, budget: float, number: float, tensors: list[tuple[str, Any]]):
        super().__init__(Row("", "", True), [], budget)
        self._blank, self._bounds = _Blank(number), Bounds(tensors)

    def forget_stores(self, all_of_them: bool) -> None:
        """What programs store is not known; of those that are masked, or of all."""
        if all_of_them or Guesses.doubtful():
            self.row.stored_lanes = STORES_UNKNOWN
        if all_of_them or Guesses.doubtful() or not self._bounds.certain:
            self.row.stored = STORES_UNKNOWN

    def guess(self) -> None:
        self._bounds.certain = False

    def access(self, pointers: np.ndarray, mask: np.ndarray, width: int, stored: bool, repeat: int) -> Any:
        self.step(pointers.size, 0)
        self._batch.accesses += len(pointers) * repeat
        self._batch.elements += pointers.size * repeat
        complete = bool(mask.all())
        count = pointers.size if complete else int(np.count_nonzero(mask))
        self.row.stored_lanes += pointers.size * width * stored
        if count:
            self._batch.access(mask, stored)
            self.row.moved += count * width
            self.row.stored += count * width * stored
            if self._bounds.certain:
                self._bounds.check(pointers.ravel() if complete else pointers[mask], width, stored)
        return self._blank, count, complete


def work(
    run: Callable[[Meter, np.ndarray], None], sizes: tuple[int, ...], seed: int, tensors: list[tuple[str, Any]]
) -> np.ndarray:
    """What a program of a grid of these sizes does, in COUNTED; zeros where none runs without data. Of those that have
    no end within the budget, what they do until then, and no bytes. The bytes moved are those of the one that moves
    least, and those stored of the one that stores most.

    Args:
        run: executes the program at a place [1, 3] of the grid.
        seed: decides which programs run.
        tensors: those that the kernel is given, by name.

    Raises:
        LaunchLimitExceeded: no GPU would launch the kernel.
        MemoryFault: a program leaves the tensors, whatever the data are.
    """
    draws = np.random.default_rng(seed)
    grid = (*sizes, 1, 1)[:3]
    places, number = _places(grid, draws), draws.uniform(0.1, 0.9)
    found, left, most = [np.zeros(len(COUNTED))], BUDGET, np.zeros(2)
    for place in places:
        meter = _BlindMeter(left, number, tensors)
        runs = _runs(run, meter, place)
        most = np.maximum(most, _stored(meter))
        if not runs:
            break
        meter.finish(1)
        found.append(np.array([getattr(meter.row, name) for name in COUNTED], float))
        if (left := left - meter.work) < meter.work:  # the next one might have no end
            if len(found) > FEWEST:
                break
            left = 2 * meter.work
    if int(np.prod(grid)) > len(places):  # offsets are largest in the last one, which does not count
        meter = _BlindMeter(max(left, BUDGET / PROGRAMS), number, tensors)
        _runs(run, meter, np.array(grid, np.int32) - 1)
        most = np.maximum(most, _stored(meter))
    mean = np.sum(found, axis=0) / max(1, len(found) - 1)
    mean[_MOVED] = min(counts[_MOVED] for counts in found[1:]) if len(found) > min(FEWEST, len(places)) else 0.0
    enough = len(found) > min(FEWEST, len(places)) and (most[0] or int(np.prod(grid)) <= len(places))
    mean[_STORED] = most if enough else STORES_UNKNOWN
    return mean


def _stored(meter: _BlindMeter) -> tuple[float, float]:
    """Bytes that a program stores at most, without masked lanes and with them."""
    return meter.row.stored, meter.row.stored_lanes


def _runs(run: Callable[[Meter, np.ndarray], None], meter: _BlindMeter, place: np.ndarray) -> bool:
    """Whether a program runs without data; one without an end moves nothing."""
    try:
        run(meter, place[None])
    except WorkBudgetExceeded:
        meter.row.moved = 0.0
        meter.forget_stores(True)
    except Exception as error:
        if isinstance(error, CERTAIN) and not Guesses.doubtful():
            raise
        meter.forget_stores(True)
        return False
    meter.forget_stores(False)
    return True


def _places(grid: tuple[int, ...], draws: np.random.Generator) -> np.ndarray:
    """Places [n, 3] of a grid: all of few, else some that are spread evenly over each axis."""
    total = int(np.prod(grid))
    if total <= PROGRAMS:
        return np.stack(np.unravel_index(np.arange(total), grid), axis=1).astype(np.int32)
    axes = [(draws.permutation(PROGRAMS) + draws.random(PROGRAMS)) / PROGRAMS * size for size in grid]
    return np.stack(axes, axis=1).astype(np.int32)
