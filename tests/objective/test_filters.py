from dataclasses import replace

import pytest
import torch

from drkernel.objective.advantages import trloo
from drkernel.objective.filters import (
    GROUP_FILTERS,
    TURN_FILTERS,
    Decision,
    decide,
    keep_all,
    prs,
    surviving_groups,
    zero_variance,
)
from drkernel.objective.metric_sums import means
from drkernel.objective.rewards import binary
from drkernel.objective.rollouts import Rollouts, tabulate
from drkernel.types import DrKernelError, Trajectory, Turn


def table(rows: int, turns: int, **columns) -> Rollouts:
    """All turns exist and belong to one prompt, unless said otherwise."""
    values = {name: torch.as_tensor(column) for name, column in columns.items()}
    return replace(Rollouts.empty(rows, turns), **{"turn_mask": torch.ones(rows, turns, dtype=torch.bool)} | values)


def covered(coverage, **columns) -> Rollouts:
    """Correct turns with this coverage, [B, T]."""
    coverage = torch.tensor(coverage)
    return table(*coverage.shape, coverage=coverage, rewarded=torch.ones_like(coverage, dtype=torch.bool), **columns)


def chance(rollouts: Rollouts) -> torch.Tensor:
    return torch.rand(rollouts.turn_mask.shape, generator=torch.Generator().manual_seed(0))


def test_without_a_filter_all_there_is_is_kept():
    rollouts = table(1, 2, turn_mask=[[True, False]])
    decision = keep_all(rollouts)
    assert decision.keep.tolist() == decision.in_baseline.tolist() == [[True, False]]


def test_groups_whose_last_rewards_are_equal_are_dropped_whole():
    rewards = [[0.0, 2.0], [1.0, 2.0], [0.0, 2.0], [0.0, 2.1]]
    rollouts = table(4, 2, rewards=rewards, groups=[5, 9, 5, 9])
    decision = zero_variance(rollouts)
    assert decision.keep.tolist() == decision.in_baseline.tolist() == [[False] * 2, [True] * 2] * 2
    assert surviving_groups(decision, rollouts.groups).tolist() == [9]
    assert means(decision.metrics) == {"zero_variance/kept": 0.5}


@pytest.mark.parametrize(("spread", "survives"), [(0.0, False), (0.0019, False), (0.0021, True)])
def test_a_group_survives_from_the_given_spread_on(spread, survives):
    rollouts = table(2, 1, rewards=[[1.0], [1.0 + spread]])
    assert zero_variance(rollouts).keep.all() == survives


def test_the_last_turn_is_each_trajectorys_own():
    turn_mask = [[True, True], [True, False]]
    same = table(2, 2, rewards=[[0.0, 2.0], [2.0, 0.0]], turn_mask=turn_mask)
    assert not zero_variance(same).keep.any()
    different = table(2, 2, rewards=[[0.0, 2.0], [0.0, 0.0]], turn_mask=turn_mask)
    assert zero_variance(different).keep.equal(different.turn_mask)


def test_spread_in_an_earlier_turn_counts_if_asked_for():
    rollouts = table(2, 2, rewards=[[0.0, 2.0], [1.0, 2.0]])
    assert not zero_variance(rollouts, turns="last").keep.any()
    assert zero_variance(rollouts, turns="any").keep.all()
    ended = table(2, 2, rewards=[[2.0, 2.0], [2.0, 0.0]], turn_mask=[[True, True], [True, False]])
    assert not zero_variance(ended, turns="any").keep.any(), "a missing turn is not a reward of 0"


def test_groups_that_are_too_small_are_dropped_and_trajectories_without_turns_do_not_count():
    rollouts = table(3, 1, rewards=[[0.0], [1.0], [0.0]], turn_mask=[[True], [True], [False]])
    assert zero_variance(rollouts, min_size=2).keep.tolist() == [[True], [True], [False]]
    assert not zero_variance(rollouts, min_size=3).keep.any()
    alone = table(1, 1, rewards=[[1.0]])
    assert not zero_variance(alone, min_size=1).keep.any()


@pytest.mark.parametrize(
    ("coverage", "rate"), [(0.0, 0.0), (0.5, 0.0), (0.525, 0.25), (0.55, 0.5), (0.6, 1.0), (1.0, 1.0)]
)
def test_prs_keeps_correct_turns_at_the_rate_of_the_ramp(coverage, rate):
    rollouts = covered([[coverage]] * 4000)
    kept = prs(rollouts, chance(rollouts), tau=0.5, width=0.1).keep.float().mean().item()
    assert kept == pytest.approx(rate, abs=0.03 if 0 < rate < 1 else 1e-6)


def test_prs_never_keeps_at_the_foot_of_the_ramp_and_always_at_its_top():
    rollouts = covered([[0.5], [0.75]])
    for uniform in (0.0, 1 - 2**-24):
        assert prs(rollouts, torch.full((2, 1), uniform), tau=0.5, width=0.25).keep.tolist() == [[False], [True]]


def test_prs_with_the_papers_threshold_keeps_more():
    rollouts = covered([[0.35]])
    assert prs(rollouts, torch.tensor([[0.4]]), tau=0.3).keep.item()
    assert not prs(rollouts, torch.tensor([[0.4]])).keep.item()


def test_prs_leaves_incorrect_turns_alone():
    rollouts = table(3, 1, turn_mask=[[True], [False], [True]], rewarded=[[False], [False], [True]])
    decision = prs(rollouts, torch.ones(3, 1))
    assert decision.keep.tolist() == [[True], [False], [False]]
    assert means(decision.metrics) == {"prs/kept": 0.0}, "of the correct ones"


def test_hard_prs_asks_for_the_threshold_and_uses_no_chance():
    rollouts = covered([[0.5], [0.49]])
    for uniform in (0.0, 0.999):
        assert prs(rollouts, torch.full((2, 1), uniform), width=0, tau=0.5).keep.tolist() == [[True], [False]]


def test_prs_over_a_trajectory_goes_by_the_geometric_mean_of_its_correct_turns():
    coverage = [[0.25, 1.0], [0.25, 0.81], [0.0, 1.0], [0.8, 0.0]]
    rollouts = covered(coverage)
    rollouts.rewarded[3, 1] = False
    keep = prs(rollouts, chance(rollouts), mode="geometric", width=0, tau=0.5).keep
    assert keep.tolist() == [[True] * 2, [False] * 2, [False] * 2, [True] * 2]


def test_prs_keeps_fast_turns_whatever_their_coverage_if_asked_to():
    rollouts = covered([[0.0], [0.0]], speedup=[[1.5], [1.4]])
    assert not prs(rollouts, chance(rollouts)).keep.any()
    assert prs(rollouts, chance(rollouts), speedup_from=1.5).keep.tolist() == [[True], [False]]


def test_turns_that_prs_rejects_leave_the_baseline_unless_the_published_code_is_wanted():
    rollouts = covered([[0.0], [0.9], [0.9]], groups=[0, 0, 0])
    rollouts.rewarded[2] = False
    returns = torch.tensor([[2.0], [4.0], [0.0]])

    def kept_advantages(**options):
        decision = prs(rollouts, chance(rollouts), **options)
        return trloo(returns, rollouts.turn_mask, rollouts.groups, decision.in_baseline)[decision.keep].tolist()

    assert kept_advantages() == [4, -4], "those of a group of two"
    assert kept_advantages(rejected_in_baseline=True) == [3, -3]
    returns[0] = 5.0
    assert kept_advantages(rejected_in_baseline=True) == [1.5, -4.5], "which do not even sum to 0"


def test_the_one_turn_that_prs_leaves_of_a_group_is_compared_with_those_it_rejects():
    rollouts = covered([[0.0, 0.9], [0.0, 0.9], [0.9, 0.0]])
    decision = prs(rollouts, chance(rollouts))
    assert decision.keep.tolist() == [[False, True], [False, True], [True, False]]
    assert decision.in_baseline.tolist() == [[True, True], [True, True], [True, False]]


def test_filters_compose_in_any_order():
    rollouts = covered([[0.9], [0.1], [0.9], [0.9]], rewards=[[3.0], [2.0], [1.0], [1.0]], groups=[0, 0, 1, 1])
    rollouts = replace(rollouts, finished=torch.tensor([[True], [True], [True], [False]]))
    uniforms = chance(rollouts)
    names = [*GROUP_FILTERS, *TURN_FILTERS]
    decisions = [decide({name: {} for name in order}, rollouts, uniforms) for order in (names, names[::-1])]
    for decision in decisions:
        assert decision.keep.tolist() == [[True], [False], [False], [False]]
        assert decision.in_baseline.tolist() == [[True], [True], [False], [False]]
        assert means(decision.metrics) == {"zero_variance/kept": 0.5, "prs/kept": 0.75, "overlong/kept": 0.75}
    assert decide({}, rollouts, uniforms).keep.all()
    assert decide({"prs": {"tau": 0.0}}, rollouts, uniforms).keep.all()


def test_the_one_turn_that_two_filters_leave_together_is_compared_with_those_they_reject():
    rollouts = covered([[0.9], [0.0], [0.9]], finished=[[True], [True], [False]])
    decision = decide({"prs": {}, "overlong": {}}, rollouts, chance(rollouts))
    assert decision.keep.tolist() == [[True], [False], [False]]
    assert decision.in_baseline.tolist() == [[True], [True], [True]]


def test_an_unknown_filter_or_mode_is_refused_with_the_known_ones():
    rollouts = table(1, 1)
    with pytest.raises(DrKernelError, match="found 'psr', expected one of zero_variance, prs, overlong"):
        decide({"psr": {}}, rollouts, chance(rollouts))
    for name, options in [("prs", {"mode": "x"}), ("zero_variance", {"turns": "x"})]:
        with pytest.raises(DrKernelError, match="found 'x', expected"):
            decide({name: options}, rollouts, chance(rollouts))


def test_a_filter_can_look_at_completions_that_were_cut(monkeypatch):
    """All that a new filter takes: a function, without options here, and its line in the registry."""

    def truncated(rollouts, uniforms):
        keep = rollouts.turn_mask & rollouts.finished
        return Decision(keep, rollouts.turn_mask)

    monkeypatch.setitem(TURN_FILTERS, "truncated", truncated)
    turns = [Turn([1], [2], [0.0], finished=True), Turn([1], [2], [0.0], finished=False)]
    rollouts = tabulate([Trajectory("t", 0, 0, turns), Trajectory("t", 0, 1, turns[:1])], binary)
    decision = decide({"truncated": {}}, rollouts, chance(rollouts))
    assert decision.keep.tolist() == [[True, False], [True, False]]
    assert decision.in_baseline.tolist() == [[True, True], [True, False]]
