"""What the two timers share: the order of blocks, their size, the cold L2 cache, and the statistics of their times.

Both measure variants of one computation in turn. A block is a few calls of one variant. A round is a block of each
variant on the same fresh inputs. Every second round runs backwards (A B, B A), so that a slow drift of the clock
frequency hits all variants alike, and an even number of rounds counts. Each call finds a cold L2 cache.

    timer.PairedTimer       a reference against a submission that runs in an untrusted process
    stopwatch.interleave    variants of a reference in one trusted process
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy
import torch
from torch import Tensor

from drkernel.judge.boundary.cuda.calls import FLUSH

MAX_CALLS_PER_BLOCK, BLOCK_US = 16, 800.0
"""A block has as many calls as take so long together, and never more than this."""
MIN_CALLS, NARROW = 6, 0.01
"""Calls of each variant at least; then a timer may stop where the half-width of each interval, relative to its centre,
is this small."""
_RESAMPLES = 400

T = TypeVar("T")


def calls_in_a_block(us: float) -> float:
    """How many calls of so many microseconds fill a block; not rounded."""
    return min(MAX_CALLS_PER_BLOCK, BLOCK_US / max(us, 1.0))


def rounds(variants: Sequence[T]) -> Iterator[tuple[list[T], bool]]:
    """For each round, without end: the variants in its order, and whether it completes an even number of rounds.

    >>> list(itertools.islice(rounds(["A", "B"]), 3))
    [(['A', 'B'], False), (['B', 'A'], True), (['A', 'B'], False)]
    """
    for backwards in itertools.cycle((False, True)):
        yield list(reversed(variants)) if backwards else list(variants), backwards


def flush_buffer() -> Tensor:
    """Device memory of more than the L2 cache. `flush_buffer().sum()` reads it all and leaves nothing else cached."""
    return torch.zeros(FLUSH // 4, device="cuda")


def median_interval(times: list[float]) -> tuple[float, float]:
    """95 % interval of the median, from order statistics (the binomial's normal approximation).

    >>> median_interval([float(us) for us in range(101)])
    (40.0, 60.0)
    """
    ordered, middle, half = sorted(times), (len(times) - 1) / 2, 0.98 * math.sqrt(len(times))
    return ordered[max(0, math.floor(middle - half))], ordered[min(len(times) - 1, math.ceil(middle + half))]


def ratio_interval(one: numpy.ndarray, other: numpy.ndarray, seed: int) -> tuple[float, float]:
    """95 % bootstrap interval of median(one) / median(other)."""
    draw = numpy.random.default_rng(seed)

    def medians(times: numpy.ndarray) -> numpy.ndarray:
        picks = numpy.sort(draw.integers(len(times), size=(_RESAMPLES, len(times)), dtype=numpy.int32), axis=1)
        middle = picks[:, [(len(times) - 1) // 2, len(times) // 2]]
        return numpy.sort(times)[middle].mean(axis=1)

    low, high = numpy.quantile(medians(one) / medians(other), (0.025, 0.975))
    return float(low), float(high)
