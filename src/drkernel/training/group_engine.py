"""Tensor parallel generation: `engine.tensor_parallel` consecutive ranks of a node have one engine together.

Each of them holds a slice of every weight. vLLM has a scheduler on each rank, and they agree if all ranks add the same
requests between the same steps. Outside of rollouts every rank does so by itself (`check_agreement`). In a rollout
verdicts come when they come, so one rank decides: the first rank of a group plays the group's share of the
trajectories, and before each step it tells the others which requests are new.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from drkernel.policy.engine import Completion, Engine, Request, Share
from drkernel.training.ranks import TIMEOUT, Ranks
from drkernel.types import DrKernelError

T = TypeVar("T")


def expect_groups(ranks: Ranks, size: int) -> None:
    """Raises DrKernelError where the ranks of a node cannot be divided into groups of `size`."""
    if ranks.local_size % size:
        found = f"engine.tensor_parallel={size} with {ranks.local_size} ranks on a node"
        raise DrKernelError(f"config: {found}; expected a number of ranks that {size} divides")


def ranks_of_group(ranks: Ranks, size: int, timeout: timedelta = TIMEOUT) -> Ranks:
    """This rank among the `size` consecutive ranks of its group. Collective, all ranks must call it."""
    groups = [list(range(first, first + size)) for first in range(0, ranks.size, size)]
    made = [dist.new_group(group, timeout=timeout, backend="gloo") for group in groups]
    number, place = divmod(ranks.rank, size)
    return dataclasses.replace(ranks, rank=place, size=size, local_rank=place, local_size=size, group=made[number])


class GroupEngine:
    """drkernel.policy.engine.Engine: this rank's part of an engine that a group of ranks has together."""

    def __init__(self, engine: Engine, group: Ranks):
        self._engine, self._group = engine, group
        self._shard = (dist.get_rank() // group.size, dist.get_world_size() // group.size)
        self._new: list[Request] | None = None  # not yet told to the others; None: every rank adds for itself
        self._completed = hashlib.sha256()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def busy(self) -> bool:
        return bool(self._new) or self._engine.busy

    def add(self, request: Request) -> None:
        if self._new is None:
            return self._engine.add(request)
        request.check(self._engine.context)  # here, where the error can be raised on this rank alone
        self._new.append(request)

    def step(self) -> list[Completion]:
        if self._new is None:
            return self._engine.step()
        new, self._new = self._new, []
        return self._step(self._group.broadcast_object(lambda: new))

    def play(self, episodes: Callable[[Share], T], share: Share) -> T | None:
        """Plays the group's share, on its first rank; a rank has none of its own."""
        return self.lead_or_follow(episodes)

    def lead_or_follow(self, play: Callable[[Share], T]) -> T | None:
        """What `play` returns on the group's first rank, which alone calls it with the group's shard (k, n); None on
        the others, whose engines take the same steps until it has ended, also with an error. Collective."""
        self._completed = hashlib.sha256()
        if self._group.is_main:
            with self._leading():
                return play(self._shard)
        told: Callable[[], Any] = lambda: None  # the first rank's value is what counts
        while (new := self._group.broadcast_object(told)) is not None:
            self._step(new)
        self._expect_same(self._group.broadcast_object(told))
        return None

    @contextlib.contextmanager
    def _leading(self) -> Iterator[None]:
        self._new = []
        try:
            yield
        finally:
            self._new = None
            self._group.broadcast_object(lambda: None)
            self._group.broadcast_object(self._completed.hexdigest)

    def _step(self, new: list[Request]) -> list[Completion]:
        for request in new:
            self._engine.add(request)
        completed = self._engine.step()
        for completion in completed:
            self._completed.update(f"{completion.id} {completion.token_ids} ".encode())
        return completed

    def _expect_same(self, leaders: str) -> None:
        """Raises DrKernelError where this rank sampled other tokens than the first: then its keys and values are of
        other sequences, and the log-probabilities of all ranks are wrong."""
        if self._completed.hexdigest() != leaders:
            found = f"rank {dist.get_rank()} sampled other tokens than the first rank of its group"
            raise DrKernelError(f"engine: {found}; expected the same with engine.tensor_parallel={self._group.size}")
