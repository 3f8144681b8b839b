"""Supervised training on packed rows: what `stage=sft` and the training part of `stage=coldstart` share.

A row is one trajectory. The loss is the mean negative log-likelihood of the tokens that train, over the whole optimizer
step: all micro-batches and ranks together.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, islice, pairwise

import numpy
import torch
from torch import Tensor

from drkernel.policy.model import Policy
from drkernel.training import update
from drkernel.training.ranks import SINGLE, Ranks
from drkernel.types import Batch, Trajectory


@dataclass(frozen=True)
class Row:
    """The tokens of one trajectory, five bytes each: a large set stays in memory."""

    tokens: numpy.ndarray  # int32 [n]
    trains: numpy.ndarray  # bool [n], the tokens that the loss is of; never the first, which nothing predicts

    def __len__(self) -> int:
        return len(self.tokens)


def row(parts: Sequence[tuple[Sequence[int], bool]]) -> Row:
    """A row of (token ids, whether they train), end to end.

    >>> row([([5, 6], False), ([7], True)]).trains.tolist()
    [False, False, True]
    """
    tokens = numpy.concatenate([numpy.asarray(ids, numpy.int32) for ids, _ in parts])
    return Row(tokens, numpy.repeat([trains for _, trains in parts], [len(ids) for ids, _ in parts]))


def row_of(trajectory: Trajectory) -> Row:
    """The completions of all turns train, good and bad."""
    return row([part for turn in trajectory.turns for part in ((turn.prompt_ids, False), (turn.response_ids, True))])


def pack_rows(rows: Sequence[Row]) -> Batch:
    """Rows end to end, as `packing.pack` lays out trajectories. Advantages and log-probabilities are zero."""
    lengths = [len(each) for each in rows]
    tokens = torch.from_numpy(numpy.concatenate([each.tokens for each in rows]).astype(numpy.int64))
    mask = torch.from_numpy(numpy.concatenate([each.trains for each in rows]))
    owners = torch.arange(len(rows)).repeat_interleave(torch.tensor(lengths))
    zeros = torch.zeros(len(tokens))
    return Batch(
        tokens=tokens,
        positions=torch.cat([torch.arange(length) for length in lengths]),
        cu_seqlens=torch.tensor([0, *accumulate(lengths)], dtype=torch.int32),
        loss_mask=mask,
        advantages=zeros,
        rollout_logprobs=zeros,
        turn_ids=torch.where(mask, owners, -1),
        trajectory_ids=owners,
    )


@dataclass(frozen=True)
class Epochs:
    """Shuffled passes over rows, cut into optimizer steps: a pure function of these fields, on every rank the same."""

    lengths: Sequence[int]
    seed: int
    epochs: float
    """How many passes; a step may hold the end of one and the beginning of the next."""
    batch_size: int | None = None
    """Rows per step ..."""
    batch_tokens: int | None = None
    """... or about so many tokens."""
    sources: Sequence[tuple[int, float]] = ()
    """(how many rows, weight) of each source of the rows, in turn; none: all rows are of one, whole."""

    @cached_property
    def steps(self) -> int:
        """How many optimizer steps there are, at least one."""
        ends = [0, *accumulate(count for count, _ in self._sources)]
        sizes = [1] * len(self.lengths) if self.batch_tokens is None else self.lengths
        parts = (sum(sizes[first:last]) for first, last in pairwise(ends))
        size = sum(weight * part for part, (_, weight) in zip(parts, self._sources, strict=True))
        return max(1, round(self.epochs * size / self._limit))

    def batches(self, after: int = 0) -> Iterator[list[int]]:
        """The rows of each step that follows `after` steps, without end."""
        return islice(self._endless(), after, None)

    def _endless(self) -> Iterator[list[int]]:
        epoch, batch, filled = 0, [], 0
        while True:
            order = self._drawn(epoch)
            random.Random(f"{self.seed}/{epoch}").shuffle(order)
            for i in order:
                batch.append(i)
                filled += 1 if self.batch_tokens is None else self.lengths[i]
                if filled >= self._limit:
                    yield batch
                    batch, filled = [], 0
            epoch += 1

    def _drawn(self, epoch: int) -> list[int]:
        """The rows of an epoch, in their order."""
        rows, first = [], 0
        for number, (count, weight) in enumerate(self._sources):
            rows += [first + i for i in share_of(count, weight, epoch, f"{self.seed}/source {number}")]
            first += count
        return rows

    @property
    def _sources(self) -> Sequence[tuple[int, float]]:
        return self.sources or [(len(self.lengths), 1)]

    @property
    def _limit(self) -> int:
        limit = self.batch_size if self.batch_tokens is None else self.batch_tokens
        assert limit, "one of batch_size and batch_tokens is given"
        return limit


def share_of(count: int, weight: float, epoch: int, seed: str) -> list[int]:
    """Which of `count` rows an epoch takes: `weight` times as many, to the row, ascending. An epoch goes on in a
    permutation of all rows where the one before ended, so that all are taken equally often, but for one.

    >>> [share_of(6, 0.5, epoch, "0") for epoch in range(2)], share_of(3, 2, 0, "0")
    ([[0, 1, 5], [2, 3, 4]], [0, 0, 1, 1, 2, 2])
    """
    first, last = (math.floor(Fraction(repr(weight)) * count * end) for end in (epoch, epoch + 1))
    rows: list[int] = []
    for number in range(first // count, -(-last // count)):
        begin, end = max(0, first - number * count), min(count, last - number * count)
        order = list(range(count))
        if end - begin < count:
            random.Random(f"{seed}/{number}").shuffle(order)
        rows += order[begin:end]
    return sorted(rows)


def schedule(step: int, steps: int, warmup: float = 0.05, end: float = 0.1) -> float:
    """Factor of the peak learning rate: a linear rise over the share `warmup` of the steps, then a cosine to `end`.

    >>> [round(schedule(step, 100), 3) for step in (0, 4, 99)]
    [0.2, 1.0, 0.1]
    """
    return update.schedule(step, steps, int(steps * warmup + 1e-9), end, "cosine")


def step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[Row],
    lr: float,
    *,
    max_tokens: int,
    max_grad_norm: float,
    ranks: Ranks = SINGLE,
) -> dict[str, float]:
    """One optimizer step on rows; the metrics of `update.step`. Collective."""
    update.set_learning_rate(optimizer, lr)
    batch = pack_rows(rows)
    count = int(batch.loss_mask.sum())
    return update.step(
        policy,
        optimizer,
        batch,
        lambda logprobs, _: -logprobs.sum() / count,
        max_tokens=max_tokens,
        max_grad_norm=max_grad_norm,
        ranks=ranks,
    )


def loss(policy: Policy, rows: Sequence[Row], max_tokens: int, ranks: Ranks = SINGLE) -> float:
    """Mean negative log-likelihood (nats per token that trains) of rows that were not trained on. Collective."""
    return mean_loss(logprobs(policy, rows, max_tokens, ranks))


def mean_loss(logprobs: Sequence[Tensor]) -> float:
    """The loss of rows whose log-probabilities these are."""
    return -float(torch.cat([*logprobs]).mean())


@torch.no_grad()
def logprobs(policy: Policy, rows: Sequence[Row], max_tokens: int, ranks: Ranks = SINGLE) -> Sequence[Tensor]:
    """Of each row, log pi of its tokens that train. Collective."""
    batch = pack_rows(rows)
    values: Tensor = update.logprobs(policy, batch, max_tokens=max_tokens, ranks=ranks)
    return values[batch.loss_mask].split([int(each.trains.sum()) for each in rows])
