"""Instructions that operations of Triton's language take a GPU, for each element. Runs in simulated runners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from drkernel.judge.untrusted.simulated import numerics

COSTS: dict[Any, int] = {
    np.divide: 6, np.fmod: 16, np.exp: 4, np.exp2: 3, np.log: 20, np.log2: 20, np.sqrt: 8, np.sin: 40, np.cos: 40,
    numerics.erf: 28,
}  # fmt: skip
"""Operations that take more than one. Integer division counts as np.fmod.

exp is a hardware approximation. log, sin, cos and erf are polynomials with range reduction in libdevice.
"""

INTEGER = 0.25
"""Other integer operations: a GPU computes most addresses and masks once for four elements."""

REDUCE, SCAN, EXCHANGE = 2, 24, 50
"""Exchanges between threads included. The last is for each element that goes to another thread through shared memory:
in each step of tl.sort, for which an H200 took 367 us (8,192 rows of 1,024 numbers), in tl.gather, and where a block is
transposed that is too narrow for tl.dot."""
_NARROW = 16

_LONG: dict[Any, float] = {np.multiply: 8, np.fmod: 64}
"""Of 64-bit integers: four multiplications of 32 bits, which run at half the rate; a division is a function."""
ADDRESSES = 4
"""Of these operations, those for each element that a program loads or stores that may compute its address."""


def is_narrow(shape: Sequence[int]) -> bool:
    """Whether a block of this shape is too narrow for tl.dot; one that is a single row or column has no other order."""
    several = [size for size in shape if size > 1]
    return len(several) > 1 and min(several) < _NARROW


def simple_cost(numbers: np.ndarray) -> float:
    """Of an addition, comparison, ... of such numbers. What they are is seen: a dtype may be made to lie."""
    return 1 if numbers.dtype.kind == "f" else INTEGER


def long_cost(op: Callable | None, result: np.ndarray) -> float:
    """Instructions of a multiplication or division of blocks of 64-bit integers beyond those that count for an
    address; 0 of anything else."""
    is_long = result.ndim > 1 and result.itemsize == 8 and result.dtype.kind in "iu" and op in _LONG
    return _LONG[op] - COSTS.get(op, INTEGER) if is_long else 0.0
