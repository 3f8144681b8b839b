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
UNEXPLAINED_SHARE, _UNHIDDEN_SLACK_US = 0.03, 1500.0
"""By which share of the reported time, beside a slack, the trusted clock may exceed it; and the slack where launch
latency was not hidden."""
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
    excess_us: float
    """How much longer the best block took by the trusted clock than by the runner's report, beyond the usual."""
    reported_us: float
    """What the runner reports for a whole block, median."""
    copy_delay_us: float
    """How much longer than it must the inputs' copy took, median: a time slice and more while the runner computes."""
    uneven: bool = False
    """Whether some calls of a block took so much longer than others that the blocks' means count."""
    floor_us: float = 0.0
    """What a call takes at least, as single calls say; see single_calls."""

    @property
    def gpu_kept_busy(self) -> bool:
        """Whether the GPU was computing for the runner when the runner should have been waiting."""
        return self.copy_delay_us > COPY_DELAY_US

    def at_least(self, floor_us: float) -> Timing:
        """This outcome where no call of the submission takes less."""
        factor = min(1.0, self.submission_us / floor_us) if floor_us else 1.0
        ratios = {key: factor * getattr(self, key) for key in ("speedup", "low", "high")}
        return dataclasses.replace(self, **ratios, submission_us=self.submission_us / factor, floor_us=floor_us)

    def exceeds_report(self, slack_us: float) -> bool:
        """Whether the trusted clock saw more time than the runner's report and a slack explain."""
        return self.excess_us > (slack_us if self.gated else _UNHIDDEN_SLACK_US) + UNEXPLAINED_SHARE * self.reported_us


def combined(one: Timing, other: Timing) -> Timing:
    """Of two processes: the geometric means, and whatever speaks against either."""
    keys = ("speedup", "low", "high", "reference_us", "submission_us")
    means = {key: math.sqrt(getattr(one, key) * getattr(other, key)) for key in keys}
    worse = {
        key: max(getattr(one, key), getattr(other, key))
        for key in ("excess_us", "reported_us", "copy_delay_us", "floor_us")
    }
    calls, uneven = one.calls + other.calls, one.uneven or other.uneven
    return Timing(**means, calls=calls, gated=one.gated and other.gated, uneven=uneven, **worse)


def timing_of(
    theirs: Sequence[Block],
    ours: Sequence[Block],
    seed: int,
    gated: bool,
    overhead_us: float,
    copy_delays_us: Sequence[float],
) -> Timing:
    """The outcome of some rounds.

    Args:
        theirs, ours: blocks of the reference, and of the submission.
        seed: of the bootstrap.
        overhead_us: by how much the trusted clock exceeds the events of an honest block.
    """
    reference, submission = (numpy.array([us for block in blocks for us in block.forward]) for blocks in (theirs, ours))
    for key in ("copy", "flush"):  # what these take longer than they can is work of the call
        usual = float(numpy.median([us for block in theirs for us in getattr(block, key)]))
        reported = numpy.array([us for block in ours for us in getattr(block, key)])
        submission = submission + numpy.maximum(0.0, reported - 2 * usual - _COPY_SLACK_US)
    means = numpy.array([part.mean() for part in numpy.split(submission, len(ours))])
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
        calls=sum(len(block.forward) for block in ours),
        gated=gated,
        excess_us=min(block.wall - block.whole - overhead_us for block in ours),
        reported_us=float(numpy.median([block.whole for block in ours])),
        copy_delay_us=float(numpy.median(copy_delays_us)),
        uneven=uneven,
    )
