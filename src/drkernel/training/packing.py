"""Trajectories become one packed Batch, and the Batch becomes micro-batches.

A trajectory's turns extend each other token by token, so all of them fit in one row. Each turn has one advantage, which
all its response tokens get:

    row    | task | completion 1 | feedback 1 | completion 2 | feedback 2 | completion 3 |
    mask   |  0   |      1       |     0      |      1       |     0      |      1       |
    turn   |  -1  |      0       |    -1      |      1       |    -1      |      2       |

A turn whose history is not the turns before (`Turn.history`: their thoughts were stripped) begins a row of its own.
`layout="turn"` writes one row per turn instead: its prefix, then its completion. This is the paper's way. It has two to
three times the tokens and the same gradient up to rounding (tests/training/test_update.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

import numpy
import torch
from torch import Tensor

from drkernel.types import Batch, Trajectory

BREAK_EVEN = 16_384
"""Tokens of a row whose attention takes about as long as its matrix products with weights."""


def pack(
    trajectories: list[Trajectory],
    layout: str = "trajectory",
    *,
    advantages: Tensor | None = None,
    train: Tensor | None = None,
) -> Batch:
    """All trajectories of a step, B with at most K turns, end to end.

    advantages: float [B, K], one per turn; zero if not given.
    train: bool [B, K], the turns that train; all if not given. `Batch.loss_mask` is restricted to them.

    Turn k of trajectory b has turn id `b * K + k`, whether it trains or not.
    """
    most = max(len(trajectory.turns) for trajectory in trajectories)
    tokens: list[int] = []
    logprobs: list[float] = []
    runs: list[tuple[int, int]] = []
    lengths, owners = [], []
    for b, trajectory in enumerate(trajectories):
        for numbers, trained in _rows(trajectory, layout):
            start = len(tokens)
            history = trajectory.turns[numbers[0]].history or []
            tokens += history
            runs.append((-1, len(history)))
            for k in numbers:
                turn = trajectory.turns[k]
                tokens += turn.prompt_ids + turn.response_ids
                logprobs += turn.logprobs if k in trained else []
                runs += (-1, len(turn.prompt_ids)), (b * most + k if k in trained else -1, len(turn.response_ids))
            lengths.append(len(tokens) - start)
            owners.append(b)
    turn_ids, sizes = torch.tensor(runs).unbind(1)
    turn_ids = turn_ids.repeat_interleave(sizes)
    batch = Batch(
        tokens=torch.from_numpy(numpy.array(tokens, numpy.int64)),  # five times as fast as torch.tensor
        positions=torch.cat([torch.arange(length) for length in lengths]),
        cu_seqlens=torch.tensor([0, *accumulate(lengths)], dtype=torch.int32),
        loss_mask=turn_ids >= 0,
        advantages=torch.zeros(len(tokens)),
        rollout_logprobs=torch.zeros(len(tokens)),
        turn_ids=turn_ids,
        trajectory_ids=torch.tensor(owners).repeat_interleave(torch.tensor(lengths)),
    )
    batch.rollout_logprobs[batch.loss_mask] = torch.from_numpy(numpy.array(logprobs, numpy.float32))
    if advantages is not None:
        batch.advantages = to_tokens(advantages, batch)
    if train is not None:
        batch.loss_mask = to_tokens(train, batch)
    return batch


def _rows(trajectory: Trajectory, layout: str) -> list[tuple[range, range]]:
    """The turns of each row, and which of them it trains. A turn with a history of its own begins a row."""
    number = len(trajectory.turns)
    begins = [0, *(k for k in range(1, number) if trajectory.turns[k].history is not None), number]
    rows = [range(begin, end) for begin, end in pairwise(begins)]
    if layout == "trajectory":
        return [(row, row) for row in rows]
    return [(range(row[0], k + 1), range(k, k + 1)) for row in rows for k in row]


def to_tokens(per_turn: Tensor, batch: Batch) -> Tensor:
    """A value per turn [B, K] onto that turn's response tokens [T]; zero elsewhere."""
    values = per_turn.flatten()[batch.turn_ids.clamp(min=0)]
    return torch.where(batch.turn_ids >= 0, values, torch.zeros((), dtype=per_turn.dtype))


def microbatches(batch: Batch, max_tokens: int) -> list[tuple[Tensor, Batch]]:
    """Micro-batches of at most `max_tokens` tokens (a longer row stands alone), each with its positions in the batch.

    Rows are taken longest first into the first micro-batch with room, so that few micro-batches are needed.
    """
    return [select(batch, sorted(rows)) for rows in _first_fit(_lengths(batch), max_tokens)]


def shard_microbatches(batch: Batch, max_tokens: int, size: int) -> list[list[tuple[Tensor, Batch]]]:
    """For each of `size` ranks its micro-batches, the same number for all ranks.

    Sharded ranks wait for each other in every micro-batch, so the k-th ones of all ranks should cost the same. Where
    there are too few rows a rank gets fillers: the shortest row again, with an empty loss mask. A single rank gets
    those of `microbatches`.
    """
    if size == 1:
        return [microbatches(batch, max_tokens)]
    lengths = _lengths(batch)
    number = -(-len(_first_fit(lengths, max_tokens)) // size) * size
    while (bins := _balanced(lengths, max_tokens, number)) is None:
        number += size
    bins.sort(key=lambda rows: -sum(cost(lengths[row]) for row in rows))
    micro = [select(batch, sorted(rows)) if rows else _filler(batch, lengths) for rows in bins]
    return [micro[rank::size] for rank in range(size)]


def cost(length: int) -> float:
    """What a row's passes take, in tokens: linear, and quadratic for attention.

    Both are equal at BREAK_EVEN tokens. Counting operations that is 10k for Qwen3-0.6B and 50k for 8B, but attention
    runs slower.

    >>> cost(1024), cost(BREAK_EVEN) / BREAK_EVEN
    (1088.0, 2.0)
    """
    return length + length * length / BREAK_EVEN


def minibatches(batch: Batch, number: int) -> Iterator[tuple[Tensor, Batch]]:
    """At most `number` batches for one optimizer step each, with their positions in the batch; rows go round-robin."""
    rows = len(batch.cu_seqlens) - 1
    for first in range(min(number, rows)):
        yield select(batch, list(range(first, rows, number)))


def select(batch: Batch, rows: list[int]) -> tuple[Tensor, Batch]:
    """Some rows of a batch, and the positions of their tokens in it."""
    spans = [(int(batch.cu_seqlens[r]), int(batch.cu_seqlens[r + 1])) for r in rows]
    index = torch.cat([torch.arange(start, end) for start, end in spans])
    names = ("tokens", "positions", "loss_mask", "advantages", "rollout_logprobs", "turn_ids", "trajectory_ids")
    cu_seqlens = torch.tensor([0, *accumulate(end - start for start, end in spans)], dtype=torch.int32)
    return index, Batch(cu_seqlens=cu_seqlens, **{name: getattr(batch, name)[index] for name in names})


def rows_that_train(batch: Batch) -> tuple[Tensor, Batch]:
    """The batch without the rows of which no token trains, and the positions of its tokens in the whole one. Those rows
    would cost a forward and a backward pass for nothing.

    Where no row is left, the shortest stays, for there is no empty batch.
    """
    bounds = batch.cu_seqlens.tolist()
    rows = [row for row, (start, end) in enumerate(pairwise(bounds)) if batch.loss_mask[start:end].any()]
    lengths = _lengths(batch)
    rows = rows or [min(range(len(lengths)), key=lengths.__getitem__)]
    return select(batch, rows)


def _lengths(batch: Batch) -> list[int]:
    return batch.cu_seqlens.diff().tolist()


def _longest_first(lengths: list[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))


def _first_fit(lengths: list[int], max_tokens: int) -> list[list[int]]:
    bins: list[list[int]] = []
    room: list[int] = []
    for row in _longest_first(lengths):
        slot = next((i for i, free in enumerate(room) if free >= lengths[row]), None)
        if slot is None:
            bins.append([])
            room.append(max_tokens)
            slot = len(bins) - 1
        bins[slot].append(row)
        room[slot] -= lengths[row]
    return bins


def _balanced(lengths: list[int], max_tokens: int, number: int) -> list[list[int]] | None:
    """Rows in `number` bins, each next longest one into the cheapest bin with room; None if one finds no room."""
    bins: list[list[int]] = [[] for _ in range(number)]
    costs, room = [0.0] * number, [max_tokens] * number
    for row in _longest_first(lengths):
        fitting = [i for i in range(number) if room[i] >= lengths[row] or not bins[i]]
        if not fitting:
            return None
        slot = min(fitting, key=lambda i: (costs[i], i))
        bins[slot].append(row)
        costs[slot] += cost(lengths[row])
        room[slot] -= lengths[row]
    return bins


def _filler(batch: Batch, lengths: list[int]) -> tuple[Tensor, Batch]:
    index, filler = select(batch, [min(range(len(lengths)), key=lengths.__getitem__)])
    filler.loss_mask = torch.zeros_like(filler.loss_mask)
    return index, filler
