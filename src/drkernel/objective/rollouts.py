"""Trajectories as a table: one row per trajectory, one column per turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drkernel.types import Trajectory, Verdict


@dataclass(frozen=True)
class Rollouts:
    """What filters, advantages and metrics look at: B trajectories of at most T turns.

    Where `exists` is False, every other [B, T] tensor holds 0 or False.
    """

    rewards: Tensor  # float32 [B, T]
    correct: Tensor  # bool [B, T], right and honest: the paper's C
    speedup: Tensor  # float32 [B, T], reference time / submission time, 0 where not timed
    coverage: Tensor  # float32 [B, T], the paper's PR, 0 where not profiled
    paid: Tensor  # bool [B, T], what the reward took for right: `correct`, but in the ablation without hack checks
    hack: Tensor  # bool [B, T]
    lazy: Tensor  # bool [B, T]
    exists: Tensor  # bool [B, T], a trajectory may end before turn T
    groups: Tensor  # int64 [B], trajectories of one group answer the same prompt

    @classmethod
    def empty(cls, rows: int, turns: int) -> Rollouts:
        """A table in which no turn exists yet."""
        measures = {name: torch.zeros(rows, turns) for name in ("rewards", "speedup", "coverage")}
        flags = {
            name: torch.zeros(rows, turns, dtype=torch.bool) for name in ("correct", "paid", "hack", "lazy", "exists")
        }
        return cls(**measures, **flags, groups=torch.zeros(rows, dtype=torch.int64))

    def first(self, turns: int) -> Rollouts:
        """The same trajectories, cut after `turns` turns."""
        columns = {f.name: getattr(self, f.name)[:, :turns] for f in dataclasses.fields(self) if f.name != "groups"}
        return Rollouts(**columns, groups=self.groups)


def tabulate(
    trajectories: Sequence[Trajectory],
    reward: Callable[[Tensor, Tensor, Tensor], Tensor],
    hack_check: bool = True,
) -> Rollouts:
    """Lay trajectories out as a table and reward each turn.

    reward   a function of `rewards.py`, its options bound: (correct, speedup, coverage), each [B, T] -> [B, T]
    hack_check   False rewards `forgiven` verdicts; what is correct and what is a hack stays as it is

    A turn without a verdict (no code in the answer) exists and is not correct.

    >>> from drkernel.objective.rewards import speedup
    >>> from drkernel.types import Turn
    >>> wrong, fast = Verdict("incorrect", "wrong_values"), Verdict("ok", "faster", speedup=1.5)
    >>> turns = [Turn([1], [2], [0.0], verdict=verdict) for verdict in (wrong, fast)]
    >>> table = tabulate([Trajectory("t", 0, 0, turns), Trajectory("t", 0, 1, turns[:1])], speedup)
    >>> table.rewards.tolist(), table.exists.tolist()
    ([[0.0, 2.5], [0.0, 0.0]], [[True, True], [True, False]])
    """
    turns = max((len(trajectory.turns) for trajectory in trajectories), default=1)
    table = Rollouts.empty(len(trajectories), max(turns, 1))
    for row, trajectory in enumerate(trajectories):
        table.groups[row] = trajectory.group
        for column, turn in enumerate(trajectory.turns):
            table.exists[row, column] = True
            if turn.verdict is None:
                continue
            table.correct[row, column] = turn.verdict.ok
            table.paid[row, column] = turn.verdict.ok if hack_check else forgiven(turn.verdict).ok
            table.speedup[row, column] = turn.verdict.speedup or 0.0
            table.coverage[row, column] = turn.verdict.coverage or 0.0
            table.hack[row, column] = turn.verdict.status == "hack"
            table.lazy[row, column] = turn.verdict.lazy
    return dataclasses.replace(table, rewards=reward(table.paid, table.speedup, table.coverage))


def forgiven(verdict: Verdict) -> Verdict:
    """What a judge without hack checks would say (the paper's ablation): an answer is right if its values are.

    Needs a judge with `price_hacks`. What was refused unseen, or for its clock, stays refused.

    >>> forgiven(Verdict("hack", "no_triton_launch", speedup=1.0, coverage=0.0, evidence={"priced_as": "lazy"})).reason
    'lazy'
    >>> forgiven(Verdict("hack", "forbidden")).reason
    'forbidden'
    """
    if verdict.status != "hack" or verdict.speedup is None:
        return verdict
    reason = verdict.evidence["priced_as"]
    return dataclasses.replace(verdict, status="ok", reason=reason, detail="", lazy=reason != "faster")


def last_turn(values: Tensor, exists: Tensor) -> Tensor:
    """The value at each trajectory's own last turn, 0 or False if it has no turn. [B, T], bool [B, T] -> [B].

    >>> last_turn(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[True, True], [True, False]])).tolist()
    [2.0, 3.0]
    """
    is_last = exists & (exists.cumsum(1) == exists.sum(1, keepdim=True))
    return torch.where(is_last, values, 0).sum(1).to(values.dtype)
