"""The outcome of timing a submission, computed from the blocks of both sides."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from drkernel.judge.devices.cuda.buffers import Block
from drkernel.judge.devices.cuda.interleaving import ratio_interval

UNEVEN = 1.25
"""A block's mean call may take so many times the median call. Above it, calls may do each other's work."""
COPY_DELAY_US = 1500.0
"""The copy of a block's inputs may take so much longer than it must: less than a time slice of 2 ms."""
FALSE_FACTOR, FALSE_US = 1.5, 20.0
"""How much longer single calls may take than those of blocks: by this factor and so many microseconds."""
FAR_BELOW = 0.9
"""Claims below this proportion of what single calls allow are false."""
OUTSIDE_US, OUTSIDE_SHARE = 1.0, 0.02
"""For how long kernels of a call may run while the cache is flushed: by so much do the device's records err."""
SLOW = 0.5
"""A submission that surely has less than this speed-up is not timed any longer, and by no single calls: what they say
could only lower it. Its calls may take a hundred times as long as the reference's, while nobody else may compute."""
_COPY_SLACK_US = 20.0
"""What copying outputs or flushing may take beyond twice the reference's usual time."""


@dataclass
class Timing:
    """How a submission's calls compare with the reference's: ratios are reference / submission."""

    speedup: float
    low: float
    high: float
    """The 95 % interval of the speed-up."""
    reference_us: float
    submission_us: float
    """Median calls."""
    calls: int
    """Of the submission."""
    gated: bool
    """Whether launch latency was hidden."""
    copy_delay_us: float
    """How much longer than it must the inputs' copy took, median: a time slice and more while the runner computes."""
    uneven: bool = False
    """Whether some calls of a block took so much longer than others that the blocks' means count."""
    floor_us: float = 0.0
    """What a call takes at least, as single calls say; see single_calls."""
    claimed_us: float = 0.0
    """The median call of the blocks, where the floor is higher."""

    outside_us: float = 0.0
    """For how long kernels of forward ran while the L2 cache was flushed, before or behind their call, median."""

    @property
    def works_outside(self) -> bool:
        """Whether forward leaves work to streams that neither wait for the call's beginning nor are waited for."""
        return self.outside_us > OUTSIDE_US + OUTSIDE_SHARE * self.submission_us

    @property
    def is_slow(self) -> bool:
        """Whether the speed-up is surely below SLOW."""
        return self.high < SLOW

    @property
    def doubtfully_uneven(self) -> bool:
        """Whether it is uneven and not slow anyway."""
        return self.uneven and not self.is_slow

    @property
    def gpu_kept_busy(self) -> bool:
        """Whether the GPU was computing for the runner when the runner should have been waiting."""
        return self.copy_delay_us > COPY_DELAY_US

    def at_least(self, floor_us: float, true_us: float) -> Timing:
        """This outcome where no call of the submission takes less than the floor. A claim far below it is no error of
        measurement, and nothing is granted to it: the call counts as `true_us`."""
        claimed_us = self.submission_us
        if floor_us <= claimed_us:
            return dataclasses.replace(self, floor_us=floor_us)
        takes_us = true_us if claimed_us < FAR_BELOW * floor_us else floor_us
        ratios = {key: claimed_us / takes_us * getattr(self, key) for key in ("speedup", "low", "high")}
        return dataclasses.replace(self, **ratios, submission_us=takes_us, floor_us=floor_us, claimed_us=claimed_us)

    @property
    def is_false(self) -> bool:
        """Whether single calls take so much longer that the calls of blocks do not do their work."""
        return self.gated and bool(self.claimed_us) and self.floor_us > FALSE_FACTOR * self.claimed_us + FALSE_US


def combined(one: Timing, other: Timing) -> Timing:
    """Of two processes: the geometric means, and whatever speaks against either."""
    keys = ("speedup", "low", "high", "reference_us", "submission_us")
    means = {key: math.sqrt(getattr(one, key) * getattr(other, key)) for key in keys}
    worst = ("copy_delay_us", "floor_us", "claimed_us", "outside_us")
    worse = {key: max(getattr(one, key), getattr(other, key)) for key in worst}
    calls, uneven = one.calls + other.calls, one.uneven or other.uneven
    return Timing(**means, calls=calls, gated=one.gated and other.gated, uneven=uneven, **worse)


def timing_of(
    reference_blocks: Sequence[Block],
    submission_blocks: Sequence[Block],
    seed: int,
    gated: bool,
    copy_delays_us: Sequence[float],
    outside_us: Sequence[float] = (0.0,),
) -> Timing:
    """The outcome of some rounds.

    Args:
        reference_blocks, submission_blocks: blocks of the reference, and of the submission.
        seed: of the bootstrap.
        copy_delays_us, outside_us: of each of the submission's blocks; see Timing.
    """
    reference, submission = (
        numpy.array([us for block in blocks for us in block.forward])
        for blocks in (reference_blocks, submission_blocks)
    )
    for key in ("copy", "flush"):  # what these take longer than they can is work of the call
        usual = float(numpy.median([us for block in reference_blocks for us in getattr(block, key)]))
        reported = numpy.array([us for block in submission_blocks for us in getattr(block, key)])
        submission = submission + numpy.maximum(0.0, reported - 2 * usual - _COPY_SLACK_US)
    means = numpy.array([part.mean() for part in numpy.split(submission, len(submission_blocks))])
    if uneven := bool(numpy.median(means) > UNEVEN * numpy.median(submission)):
        submission = means
    low, high = ratio_interval(reference, submission, seed)
    one, other = float(numpy.median(reference)), float(numpy.median(submission))
    return Timing(
        speedup=one / other,
        low=low,
        high=high,
        reference_us=one,
        submission_us=other,
        calls=sum(len(block.forward) for block in submission_blocks),
        gated=gated,
        copy_delay_us=float(numpy.median(copy_delays_us)),
        uneven=uneven,
        outside_us=float(numpy.median(outside_us)),
    )
