"""What a step says of its rollouts: of all of them, before any filter; and why none of them taught anything."""

import pytest
import torch

from drkernel.config import RewardConfig
from drkernel.training.rollout_metrics import describe_all, describe_groups, why_no_signal
from drkernel.types import Trajectory, Turn, Verdict

FAST = Verdict("ok", "faster", speedup=2.0, coverage=1.0)
LAZY = Verdict("ok", "lazy", speedup=1.0, coverage=1.0, lazy=True)
WRONG = Verdict("incorrect", "wrong_values", "output 0 differs")
NO_CODE = Verdict("invalid", "no_code", "The answer has no code that defines class ModelNew.")
FAILED = Verdict("judge_failure", "worker_lost")


def trajectory(group: int, sample: int, *verdicts: Verdict, finished: bool = True, tokens: int = 2) -> Trajectory:
    turns = [Turn([1], [2] * tokens, [0.0] * tokens, verdict=verdict, finished=finished) for verdict in verdicts]
    return Trajectory(f"task {group}", group, sample, turns)


EVERY = [
    *(trajectory(0, sample, LAZY, FAST) for sample in range(2)),  # all solved
    *(trajectory(1, sample, WRONG, NO_CODE) for sample in range(2)),  # none solved
    trajectory(2, 0, WRONG, FAST, tokens=6),
    trajectory(2, 1, WRONG, WRONG, finished=False),
    trajectory(3, 0, WRONG, FAILED),
]
"""Three judged groups, of which the third has a signal in its last turn; of the fourth nothing is known."""


def test_measures_are_of_all_judged_rollouts_and_not_of_those_that_survive():
    metrics = describe_all(RewardConfig(name="binary"), EVERY)
    assert metrics["correct"] == metrics["reward"] == 5 / 12
    assert metrics["lazy"] == 2 / 12
    assert metrics["speedup"] == pytest.approx((2 * 1.0 + 3 * 2.0) / 5)


def test_verdicts_are_counted_by_status_and_reason_as_shares_of_all_turns():
    metrics = describe_all(RewardConfig(), EVERY)
    assert metrics["verdict/ok"] == 5 / 12 and metrics["verdict/incorrect"] == 5 / 12
    assert metrics["verdict/invalid"] == 2 / 12 and metrics["verdict/hack"] == 0
    assert metrics["reason/wrong_values"] == 5 / 12 and metrics["reason/no_code"] == 2 / 12
    assert sum(value for name, value in metrics.items() if name.startswith("reason/")) == pytest.approx(1)


def test_lengths_truncation_and_missing_code_have_metrics_of_their_own():
    metrics = describe_all(RewardConfig(), EVERY)
    assert metrics["no_code"] == metrics["truncated"] == 2 / 12
    assert metrics["length/completion"] == pytest.approx((10 * 2 + 2 * 6) / 12)
    assert metrics["length/completion_max"] == 6
    assert metrics["length/trajectory_max"] == 14 and metrics["turns"] == 2


def test_failures_of_the_judge_are_counted_and_are_no_part_of_any_other_figure():
    metrics = describe_all(RewardConfig(), EVERY)
    assert metrics["rollouts"] == 7 and metrics["judge/failures"] == 1 and metrics["judge/worker_lost"] == 1
    assert describe_all(RewardConfig(), EVERY[:6])["judge/failures"] == 0
    assert "reason/worker_lost" not in metrics and "verdict/judge_failure" not in metrics


def test_groups_are_counted_before_filters_drop_them():
    groups = describe_groups(RewardConfig(name="binary"), EVERY, kept={2}, refilled=1, surplus=1)
    assert groups == {
        "groups/played": 4,
        "groups/all_solved": pytest.approx(1 / 3),
        "groups/none_solved": pytest.approx(1 / 3),
        "groups/with_signal": pytest.approx(1 / 3),
        "groups/dropped": pytest.approx(2 / 3),
        "groups/surplus": pytest.approx(1 / 3),
        "groups/refilled": 1 / 4,
    }


def test_a_step_without_signal_says_why_with_an_example():
    line = why_no_signal(RewardConfig(), EVERY[2:4], {1})
    assert line.startswith("no group carried signal: every reward is 0")
    assert "wrong_values 2" in line and "no_code 2" in line and "task 1" in line and "output 0 differs" in line
    same = why_no_signal(RewardConfig(name="binary"), EVERY[:2], {0})
    assert same.startswith("no group carried signal: the rewards of each group are equal") and "faster 2" in same


def test_a_step_of_which_filters_keep_nothing_says_so():
    line = why_no_signal(RewardConfig(), EVERY, set())
    assert line.startswith("no group carried signal: the group filters keep none (turns by reason: wrong_values")


def test_a_step_with_signal_says_nothing():
    assert why_no_signal(RewardConfig(), EVERY, {2}) == ""
    assert why_no_signal(RewardConfig(), EVERY[:1], {0}) == "", "a group of one has no baseline"


def test_a_step_on_which_the_judge_always_failed_has_figures_all_the_same():
    metrics = describe_all(RewardConfig(), EVERY[6:]) | describe_groups(RewardConfig(), EVERY[6:], set(), 0)
    assert metrics["judge/failures"] == 1 and torch.tensor(metrics["reward"]).isnan()
