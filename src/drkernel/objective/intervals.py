"""Estimators of train.py and evaluate.py: intervals by resampling tasks, paired differences, and what k samples would
give.

The resampled tasks come from a counter-based generator, so that the same numbers have the same interval everywhere.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

RESAMPLES = 1000
Z95 = 1.96


@dataclass(frozen=True)
class Estimate:
    """A mean over samples and its 95 % interval.

    >>> print(Estimate(0.5, 0.25, 0.75, 16))
    0.500 [0.250, 0.750]
    """

    value: float
    low: float
    high: float
    samples: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def wilson(share: float, samples: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval of a share seen in `samples` independent draws; unlike share +- z * se it stays in [0, 1].

    >>> [round(bound, 3) for bound in wilson(0.0, 16)]
    [0.0, 0.194]
    """
    spread = z * math.sqrt(share * (1 - share) / samples + z * z / (4 * samples * samples))
    centre, width = share + z * z / (2 * samples), 1 + z * z / samples
    return max(0.0, (centre - spread) / width), min(1.0, (centre + spread) / width)


def mulberry32(count: int, seed: int = 0) -> Tensor:
    """`count` pseudo-random integers below 2^32 as int64 (the public-domain generator of that name).

    >>> mulberry32(3).tolist()
    [1144304738, 1416247, 958946056]
    """
    low = 0xFFFFFFFF
    a = (seed + torch.arange(1, count + 1) * 0x6D2B79F5) & low
    t = _times(a ^ (a >> 15), a | 1)
    t = ((t + _times(t ^ (t >> 7), t | 61)) & low) ^ t
    return t ^ (t >> 14)


def _times(a: Tensor, b: Tensor) -> Tensor:
    """a * b modulo 2^32; in halves, since int64 has no room for the product."""
    return (a * (b & 0xFFFF) + ((a * (b >> 16) & 0xFFFF) << 16)) & 0xFFFFFFFF


@functools.lru_cache(maxsize=64)
def resamples(tasks: int) -> Tensor:
    """How often each task is drawn in each resample: float64 [RESAMPLES, tasks], each row adds up to `tasks`.

    >>> resamples(5).sum(1).unique().tolist()
    [5.0]
    """
    drawn = mulberry32(RESAMPLES * tasks).view(RESAMPLES, tasks) * tasks >> 32
    return torch.zeros(RESAMPLES, tasks, dtype=torch.float64).scatter_add_(
        1, drawn, torch.ones(1).double().expand_as(drawn)
    )


def bootstrap(sums: Tensor, numbers: Tensor, is_proportion: bool = True) -> list[Estimate]:
    """Means over samples with 95 % intervals over tasks like these, for M measures at once.

    sums, numbers   [tasks, M]: the total of a measure over the samples of each task, and how many samples there are
    is_proportion   the measure is a share; its interval then holds what few hits or few misses leave possible
                    (`_unsure`; Wilson's where each task has one sample), and is Wilson's where all tasks agree

    >>> print(bootstrap(torch.tensor([[1.0], [0.0], [2.0], [1.0]]), torch.full((4, 1), 2.0))[0])
    0.500 [0.125, 0.875]
    >>> print(bootstrap(torch.zeros(4, 1), torch.full((4, 1), 2.0))[0])
    0.000 [0.000, 0.490]
    """
    sums, numbers = sums.double(), numbers.double()
    weights = resamples(len(sums))
    same = numbers.stride(1) == 0  # one column for all measures
    bounds = _quantiles((weights @ sums) / (weights @ (numbers[:, :1] if same else numbers)))
    means, tasks = (sums.sum(0) / numbers.sum(0)).tolist(), (numbers > 0).sum(0).tolist()
    shares = (sums / numbers).T
    found = []
    for mean, (low, high), count, total, each in zip(
        means, bounds, tasks, numbers.sum(0).tolist(), shares, strict=True
    ):
        if is_proportion and low == high and count:
            low, high = wilson(mean, count)
        elif is_proportion and count > 1:
            hits = each[each.isfinite()]
            low, high = min(low, mean - _unsure(1 - hits)[1]), max(high, mean + _unsure(hits)[1])
            low, high = max(low, 0.0), min(high, 1.0)
        elif count < 2:
            low, high = math.nan, math.nan
        found.append(Estimate(mean, low, high, int(total)))
    return found


def _unsure(sizes: Tensor) -> tuple[float, float]:
    """By how much the mean of such sizes in [0, 1], one per task [tasks], may be less or more: what resampling does not
    show where few tasks have any, or all of them have.

    Wilson's bounds for the share of tasks that have any, times the mean size of those, to which Z95^2 tasks of size 1
    are added: where few were seen the next one may be as large.

    >>> [round(side, 3) for sizes in (torch.zeros(32), torch.eye(32)[0]) for side in _unsure(sizes)]
    [0.0, 0.107, 0.026, 0.126]
    """
    some = int((sizes > 1e-9).sum())
    share = some / len(sizes)
    low, high = wilson(share, len(sizes))
    each = (sizes.sum().item() + Z95**2) / (some + Z95**2)
    return each * (share - low), each * (high - share)


def _quantiles(values: Tensor) -> list[list[float]]:
    """The 2.5 % and 97.5 % quantiles of each column [R, M], without the resamples that drew no sample."""
    if not values.numel():
        return []
    quantiles = torch.tensor([0.025, 0.975], dtype=values.dtype)
    if values.isnan().any():
        return values.nanquantile(quantiles, dim=0).T.tolist()
    # The same to the bit, and several times as fast: only four places of a column need to be sorted.
    ranks = quantiles * (len(values) - 1)
    below, above = ranks.floor().long(), ranks.ceil().long()
    columns = numpy.ascontiguousarray(values.numpy().T)
    columns.partition([*below.tolist(), *above.tolist()], axis=1)
    ordered = torch.from_numpy(columns)
    return torch.lerp(ordered[:, below], ordered[:, above], ranks - below).tolist()


@dataclass(frozen=True)
class Paired:
    """What changes from one run to another on the same tasks.

    >>> print(Paired(0.1, -0.05, 0.25, 0.3, 0.2, 40))
    +0.100 [-0.050, +0.250], better on 30%, worse on 20% of 40 tasks
    """

    value: float
    """The mean over tasks of the differences; for speed-ups the geometric mean of the ratios."""
    low: float
    high: float
    better: float
    """Share of tasks."""
    worse: float
    tasks: int

    def __str__(self) -> str:
        interval = f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"
        return f"{interval}, better on {self.better:.0%}, worse on {self.worse:.0%} of {self.tasks} tasks"


def paired(first: Tensor, other: Tensor, ratio: bool = False) -> Paired:
    """other - first, each a share per task [tasks] (NaN: not there), resampling pairs; `ratio` for other / first.

    >>> change = paired(torch.tensor([0.0, 0.5, 1.0, 0.0]), torch.tensor([1.0, 0.5, 0.5, 1.0]))
    >>> change.value, change.better, change.worse
    (0.375, 0.5, 0.25)
    """
    change = (other.log() - first.log() if ratio else other - first).double()
    change = change[change.isfinite()]
    found = change_of(torch.zeros_like(change), change, is_proportion=not ratio)
    better, worse = ((sign * change > 1e-9).double().mean().item() for sign in (1, -1))
    value, low, high = (math.exp(x) if ratio else x for x in (found.value, found.low, found.high))
    return Paired(value, low, high, better, worse, len(change))


def change_of(first: Tensor, other: Tensor, is_proportion: bool = True) -> Estimate:
    """The mean of other - first, one number per task in each [tasks], and its interval, resampling pairs.

    is_proportion: they are shares; the interval then lies in [-1, 1] and holds what few changes leave possible
    (`_unsure`), as where no task has changed.

    >>> print(change_of(torch.zeros(32), torch.zeros(32)))
    0.000 [-0.107, 0.107]
    """
    change = (other - first).double()
    if len(change) == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    found = bootstrap(change[:, None], torch.ones(len(change), 1), is_proportion=False)[0]
    if not is_proportion or len(change) < 2:
        return found
    margin = max(_unsure(change.abs()))
    low, high = max(min(found.low, found.value - margin), -1.0), min(max(found.high, found.value + margin), 1.0)
    return Estimate(found.value, low, high, found.samples)


def pass_at(samples: int, right: int, k: int) -> float:
    """The chance that one of k samples is right, unbiased from `right` of `samples`: 1 - C(n-c, k) / C(n, k).

    NaN where there are fewer than k samples. (Chen et al., arXiv 2107.03374.)

    >>> pass_at(4, 1, 2), pass_at(4, 3, 2)
    (0.5, 1.0)
    """
    return 1 - math.comb(samples - right, k) / math.comb(samples, k) if samples >= k else math.nan


def best_of(values: Tensor, k: int) -> float:
    """The expected largest of k of these samples [n], drawn without replacement: unbiased for k fresh ones.

    The i-th smallest is the largest of C(i - 1, k - 1) of the C(n, k) choices. NaN where n < k.

    >>> best_of(torch.tensor([3.0, 1.0, 2.0]), 2)  # the pairs' largest: 3, 3, 2
    2.6666666666666665
    """
    n = len(values)
    if n < k:
        return math.nan
    chosen = [math.comb(i, k - 1) / math.comb(n, k) for i in range(n)]
    return sum(weight * value for weight, value in zip(chosen, values.double().sort().values.tolist(), strict=True))
