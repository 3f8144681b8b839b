"""What the config makes of rollouts: rewards, the advantage estimator, and the numbers that describe rollouts."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from textwrap import shorten
from typing import get_args

import torch
from torch import Tensor

from drkernel.config import AlgoConfig, RewardConfig
from drkernel.config.registry import bind
from drkernel.objective.advantages import ADVANTAGES
from drkernel.objective.metric_sums import MetricSums, mean_of, means
from drkernel.objective.metrics import fast_at
from drkernel.objective.rewards import REWARDS, overlong_due
from drkernel.objective.rollouts import Rollouts, last_turn, tabulate, without_judge_failures
from drkernel.types import Status, Trajectory


def tabulate_rollouts(config: RewardConfig, trajectories: Sequence[Trajectory]) -> Rollouts:
    """Verdicts as tensors, and the reward that the config chooses, less the penalty for long completions."""
    table = tabulate(trajectories, make_reward(config), config.hack_check)
    return dataclasses.replace(table, rewards=table.rewards - overlong_penalty(config, table))


def overlong_penalty(config: RewardConfig, table: Rollouts) -> Tensor:
    """What is taken off the reward of each turn, float32 [B, T]."""
    if not config.overlong_penalty:
        return torch.zeros_like(table.rewards)
    assert config.overlong_limit, "config.load sets it"
    due = overlong_due(table.lengths, config.overlong_limit, config.overlong_window)
    return torch.where(table.turn_mask, config.overlong_penalty * due, 0.0)


def make_reward(config: RewardConfig) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The chosen function of objective/rewards.py with its options: (correct, speedup, coverage) -> reward."""
    return bind(REWARDS[config.name], dataclasses.asdict(config))


def make_estimator(config: AlgoConfig) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The chosen entry of objective/advantages.py with its options.

    (returns, turn_mask, groups, baseline) -> advantages. To be made once per run: an estimator may remember what it has
    seen.
    """
    return bind(ADVANTAGES[config.advantage], dataclasses.asdict(config))


def describe_all(config: RewardConfig, every: Sequence[Trajectory]) -> dict[str, float]:
    """What all rollouts of a step were like, before any filter, those of dropped groups included.

    Figures are means over turns, of `speedup` and `coverage` over correct turns; NaN where there is none. `verdict/*`
    and `reason/*` are shares of turns. Lengths are in tokens; that of a trajectory includes prompts and feedback.
    Trajectories on which the judge failed count in `rollouts`, `judge/failures` and `judge/<reason>` alone.
    """
    judged = without_judge_failures(every)
    table, turns = tabulate_rollouts(config, judged), [turn for trajectory in judged for turn in trajectory.turns]
    failed = [t.turns[-1].verdict.reason for t in every if t.ends_in_judge_failure and t.turns[-1].verdict]
    verdicts = [turn.verdict for turn in turns if turn.verdict]
    statuses, reasons = Counter(v.status for v in verdicts), Counter(v.reason for v in verdicts)
    lengths = [len(turn.response_ids) for turn in turns]
    rows = [sum(len(t.prompt_ids) + len(t.response_ids) for t in trajectory.turns) for trajectory in judged]
    share = lambda number: number / max(len(turns), 1)
    return {
        **means(reward_sums(table, table.turn_mask)),
        "rollouts": len(every),
        "turns": len(turns) / max(len(judged), 1),
        "truncated": share(sum(not turn.finished for turn in turns)),
        **(
            {"overlong_penalty": share(overlong_penalty(config, table).sum().item())} if config.overlong_penalty else {}
        ),
        "no_code": share(reasons["no_code"]),
        "length/completion": share(sum(lengths)),
        "length/completion_max": max(lengths, default=0),
        "length/trajectory": sum(rows) / max(len(judged), 1),
        "length/trajectory_max": max(rows, default=0),
        **{f"verdict/{status}": share(statuses[status]) for status in get_args(Status) if status != "judge_failure"},
        **{f"reason/{reason}": share(number) for reason, number in sorted(reasons.items())},
        "judge/failures": len(failed),
        **{f"judge/{reason}": number for reason, number in sorted(Counter(failed).items())},
    }


def reward_sums(rollouts: Rollouts, mask: Tensor) -> MetricSums:
    """The sums of the measures of the turns in `mask`, bool [B, T]; those of `speedup` and `coverage` over correct
    ones."""
    every = {
        "reward": rollouts.rewards,
        "correct": rollouts.correct,
        "fast@1": fast_at(rollouts.correct, rollouts.speedup, 1.0),
        "fast@1.2": fast_at(rollouts.correct, rollouts.speedup, 1.2),
        "hack": rollouts.hack,
        "lazy": rollouts.lazy,
    }
    sums = {name: mean_of(values.double(), mask) for name, values in every.items()}
    return sums | {name: mean_of(getattr(rollouts, name), rollouts.correct & mask) for name in ("speedup", "coverage")}


def describe_groups(
    config: RewardConfig, every: Sequence[Trajectory], kept: Collection[int], refilled: int, surplus: int = 0
) -> dict[str, float]:
    """What became of the groups of a step, as shares of the groups that were judged (`groups/refilled`: of all).

    kept: the groups that the group filters keep. refilled: how many groups were drawn in place of dropped ones.
    surplus: how many of the kept ones a step did not need.
    A group is all solved if the last turn of each trajectory is correct, none solved if no turn is. It has a signal
    where two trajectories differ in the reward of a turn.
    """
    judged = without_judge_failures(every)
    table, played = tabulate_rollouts(config, judged), len({trajectory.group for trajectory in every})
    rows = {group: table.groups == group for group in table.groups.unique().tolist()}
    solved, share = last_turn(table.correct, table.turn_mask).bool(), lambda number: number / max(len(rows), 1)
    return {
        "groups/played": played,
        "groups/all_solved": share(sum(bool(solved[row].all()) for row in rows.values())),
        "groups/none_solved": share(sum(not table.correct[row].any() for row in rows.values())),
        "groups/with_signal": share(sum(_differs(table.rewards[row]) for row in rows.values())),
        "groups/dropped": share(sum(group not in kept for group in rows)),
        "groups/surplus": share(surplus),
        "groups/refilled": refilled / max(played, 1),
    }


def why_no_signal(config: RewardConfig, every: Sequence[Trajectory], kept: Collection[int]) -> str:
    """A line for the user where no group of a step can teach anything, with the reasons of verdicts and one example;
    else nothing.

    kept: the groups that the group filters keep. A group of one that earned something has a signal: nothing is
    subtracted from its return.
    """
    judged = without_judge_failures(every)
    table = tabulate_rollouts(config, judged)
    groups = [table.rewards[table.groups == group] for group in table.groups.unique()]
    differ = any(_differs(rewards) or (len(rewards) == 1 and rewards.any()) for rewards in groups)
    if not judged or (differ and kept):
        return ""
    turns = [(trajectory.task_id, turn.verdict) for trajectory in judged for turn in trajectory.turns if turn.verdict]
    reasons = Counter(verdict.reason for _, verdict in turns)
    most = ", ".join(f"{reason} {number}" for reason, number in reasons.most_common(4))
    task, example = next((task, v) for task, v in turns if v.reason == reasons.most_common(1)[0][0])
    what = "the rewards of each group are equal" if table.rewards.any() else "every reward is 0"
    what = "the group filters keep none" if differ else what
    detail = shorten(f"{task}, {example.reason}: {example.detail}".rstrip(": "), 200, placeholder=" ...")
    return f"no group carried signal: {what} (turns by reason: {most}; e.g. {detail})"


def _differs(rewards: Tensor) -> bool:
    """Whether two trajectories of a group, float [N, T], differ in the reward of a turn."""
    return bool((rewards != rewards[:1]).any())
