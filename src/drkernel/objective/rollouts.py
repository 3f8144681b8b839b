"""Trajectories as a table: one row per trajectory, one column per turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drkernel.types import Trajectory, Turn, Verdict


@dataclass(frozen=True)
class Rollouts:
    """What filters, advantages and metrics look at: B trajectories of at most T turns.

    Where `turn_mask` is False, every other [B, T] tensor holds 0 or False.
    """

    rewards: Tensor  # float32 [B, T]
    correct: Tensor  # bool [B, T], right and honest: the paper's C
    speedup: Tensor  # float32 [B, T], reference time / submission time, 0 where not timed
    coverage: Tensor  # float32 [B, T], the paper's PR, 0 where not profiled
    rewarded: Tensor  # bool [B, T], what the reward took for correct; differs from `correct` without hack checks
    hack: Tensor  # bool [B, T]
    lazy: Tensor  # bool [B, T]
    finished: Tensor  # bool [B, T], False where the completion was cut at its token limit
    lengths: Tensor  # float32 [B, T], tokens of the completion
    turn_mask: Tensor  # bool [B, T], which turns there are: a trajectory may end before turn T
    groups: Tensor  # int64 [B], trajectories of one group answer the same prompt

    @classmethod
    def empty(cls, rows: int, turns: int) -> Rollouts:
        """A table without a turn."""
        measures = {name: torch.zeros(rows, turns) for name in ("rewards", "speedup", "coverage", "lengths")}
        names = ("correct", "rewarded", "hack", "lazy", "finished", "turn_mask")
        flags = {name: torch.zeros(rows, turns, dtype=torch.bool) for name in names}
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
    hack_check   if False, hacks with correct outputs are rewarded; `correct` and `hack` stay as they are

    A turn without a verdict is in the table and is not correct.

    >>> from drkernel.objective.rewards import speedup
    >>> from drkernel.types import Turn
    >>> wrong, fast = Verdict("incorrect", "wrong_values"), Verdict("ok", "faster", speedup=1.5)
    >>> turns = [Turn([1], [2], [0.0], verdict=verdict) for verdict in (wrong, fast)]
    >>> table = tabulate([Trajectory("t", 0, 0, turns), Trajectory("t", 0, 1, turns[:1])], speedup)
    >>> table.rewards.tolist(), table.turn_mask.tolist()
    ([[0.0, 2.5], [0.0, 0.0]], [[True, True], [True, False]])
    """
    turns = max((len(trajectory.turns) for trajectory in trajectories), default=1)
    table = Rollouts.empty(len(trajectories), max(turns, 1))
    for row, trajectory in enumerate(trajectories):
        table.groups[row] = trajectory.group
        for column, turn in enumerate(trajectory.turns):
            table.turn_mask[row, column] = True
            table.finished[row, column] = turn.finished
            table.lengths[row, column] = len(turn.response_ids)
            if turn.verdict is None:
                continue
            table.correct[row, column] = turn.verdict.ok
            table.rewarded[row, column] = turn.verdict.ok if hack_check else ignoring_hack_check(turn.verdict).ok
            table.speedup[row, column] = turn.verdict.speedup or 0.0
            table.coverage[row, column] = turn.verdict.coverage or 0.0
            table.hack[row, column] = turn.verdict.status == "hack"
            table.lazy[row, column] = turn.verdict.lazy
    return dataclasses.replace(table, rewards=reward(table.rewarded, table.speedup, table.coverage))


def reward_of(verdict: Verdict, reward: Callable[[Tensor, Tensor, Tensor], Tensor], hack_check: bool = True) -> float:
    """What `tabulate` gives a turn with this verdict; arguments as there.

    >>> from drkernel.objective.rewards import speedup
    >>> reward_of(Verdict("ok", "faster", speedup=1.5), speedup), reward_of(Verdict("hack", "forbidden"), speedup)
    (2.5, 0.0)
    """
    alone = Trajectory("", 0, 0, [Turn([], [], [], verdict=verdict)])
    return tabulate([alone], reward, hack_check).rewards.item()


def without_judge_failures(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """The trajectories whose every turn was judged.

    A failure of the judge says nothing of the policy. The rewards-to-go of all turns before it are unknown, too, so the
    whole trajectory leaves: it does not train, and it does not count in a baseline. Nor does a policy gain by leaving:
    what a submission does to itself is never a failure of the judge (judge/PROPERTIES.md, P12).

    >>> from drkernel.types import Turn
    >>> wrong, none = Verdict("incorrect", "wrong_values"), Verdict("judge_failure", "worker_lost")
    >>> judged, failed = (Trajectory("t", 0, 0, [Turn([1], [2], [0.0], verdict=verdict)]) for verdict in (wrong, none))
    >>> without_judge_failures([judged, failed]) == [judged]
    True
    """
    return [trajectory for trajectory in trajectories if not trajectory.ends_in_judge_failure]


def ignoring_hack_check(verdict: Verdict) -> Verdict:
    """What a judge without hack checks would say (the paper's ablation): right outputs make a submission correct.

    Needs a judge with `price_hacks`. Static and timing rejections stand.

    >>> evidence = {"priced_as": "lazy"}
    >>> ignoring_hack_check(Verdict("hack", "no_triton_launch", speedup=1.0, coverage=0.0, evidence=evidence)).reason
    'lazy'
    >>> ignoring_hack_check(Verdict("hack", "forbidden")).reason
    'forbidden'
    """
    if verdict.status != "hack" or verdict.speedup is None:
        return verdict
    reason = verdict.evidence["priced_as"]
    return dataclasses.replace(verdict, status="ok", reason=reason, detail="", lazy=reason != "faster")


def last_turn(values: Tensor, turn_mask: Tensor) -> Tensor:
    """The value at each trajectory's own last turn, 0 or False if it has no turn. [B, T], bool [B, T] -> [B].

    >>> last_turn(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[True, True], [True, False]])).tolist()
    [2.0, 3.0]
    """
    is_last = turn_mask & (turn_mask.cumsum(1) == turn_mask.sum(1, keepdim=True))
    return torch.where(is_last, values, 0).sum(1).to(values.dtype)
