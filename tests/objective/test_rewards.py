import math

import pytest
import torch

from drkernel.objective.rewards import REWARDS, binary, profiling, speedup


def reward(function, correct, s, coverage, **options):
    return function(
        torch.tensor([correct]), torch.tensor([float(s)]), torch.tensor([float(coverage)]), **options
    ).item()


@pytest.mark.parametrize("name", REWARDS)
@pytest.mark.parametrize(("s", "coverage"), [(50.0, 1.0), (math.nan, math.nan), (math.inf, math.nan)])
def test_an_incorrect_answer_earns_nothing_whatever_was_measured(name, s, coverage):
    assert reward(REWARDS[name], False, s, coverage) == 0


def test_the_profiling_reward_is_the_papers_equation_for_answers_that_are_not_slow():
    assert reward(profiling, True, 1.0, 0.25) == 2.25
    assert reward(profiling, True, 2.5, 0.5) == 4.0
    assert reward(profiling, True, 100.0, 1.0) == 5.0, "the range is [0, 5]"


def test_the_other_rewards_leave_out_coverage_and_speed():
    assert reward(speedup, True, 2.5, 0.5) == 3.5
    assert reward(speedup, True, 100.0, 0.5, cap=2.0) == 3.0
    assert reward(binary, True, 2.5, 0.5) == 1.0


@pytest.mark.parametrize("name", REWARDS)
def test_half_the_scale_is_the_published_code(name):
    assert reward(REWARDS[name], True, 2.5, 0.5, scale=0.5) == 0.5 * reward(REWARDS[name], True, 2.5, 0.5)


def test_what_was_not_measured_earns_nothing_but_does_not_spoil_the_rest():
    assert reward(profiling, True, math.nan, math.nan) == 1.0
    assert reward(profiling, True, 2.0, math.nan) == 3.0


def test_coverage_pays_for_real_speed_whatever_the_cap_on_what_speed_pays():
    assert reward(profiling, True, 2.0, 0.5, cap=0.5) == 2.0
    assert reward(profiling, True, 0.9, 0.5, cap=0.5) == 1.5


def test_a_slow_rewrite_does_not_outscore_a_faster_hybrid():
    slow, hybrid = (True, 0.5, 0.9), (True, 1.15, 0.1)
    assert reward(profiling, *slow) < reward(profiling, *hybrid)
    assert reward(profiling, *slow, coverage_from=0) > reward(profiling, *hybrid, coverage_from=0), "the paper's order"


def test_no_answer_slower_than_the_reference_outscores_one_that_is_not():
    generator = torch.Generator().manual_seed(0)
    slow, fast, *coverage = torch.rand(4, 1000, generator=generator)
    right = torch.ones(1000, dtype=torch.bool)
    assert (profiling(right, slow, coverage[0]) <= profiling(right, 1 + fast, coverage[1])).all()
