import math
from dataclasses import replace

import pytest
import torch

from drkernel.objective.intervals import bootstrap, change_of, paired, wilson
from drkernel.objective.metrics import best_of_history, difference, estimate, fast_at, summary
from drkernel.objective.rewards import profiling
from drkernel.objective.rollouts import Rollouts, tabulate
from drkernel.types import Trajectory, Turn, Verdict


def trajectory(group: int, sample: int, *verdicts: Verdict | None) -> Trajectory:
    return Trajectory(f"task{group}", group, sample, [Turn([0], [1], [0.0], verdict=verdict) for verdict in verdicts])


def ok(speedup: float, coverage: float = 0.5, lazy: bool = False) -> Verdict:
    return Verdict("ok", "faster", speedup=speedup, coverage=coverage, lazy=lazy)


WRONG = Verdict("incorrect", "wrong_values")
HACK = Verdict("hack", "no_triton_launch", speedup=9.0, coverage=0.0, evidence={"priced_as": "faster"})
UNSEEN = Verdict("hack", "forbidden")


def test_trajectories_become_a_table():
    table = tabulate(
        [trajectory(3, 0, WRONG, ok(2.0)), trajectory(3, 1, HACK), trajectory(4, 0, None, ok(1.0))], profiling
    )
    assert table.rewards.tolist() == [[0, 3.5], [0, 0], [0, 2.5]]
    assert table.correct.tolist() == [[False, True], [False, False], [False, True]]
    assert table.hack.tolist() == [[False, False], [True, False], [False, False]]
    assert table.turn_mask.tolist() == [[True, True], [True, False], [True, True]]
    assert table.groups.tolist() == [3, 3, 4]


def test_without_hack_checks_priced_hacks_are_rewarded_and_still_reported():
    table = tabulate([trajectory(0, 0, HACK, ok(1.0)), trajectory(0, 1, UNSEEN)], profiling, hack_check=False)
    assert table.rewards.tolist() == [[4, 2.5], [0, 0]]
    assert table.hack.tolist() == [[True, False], [True, False]]
    assert table.correct.tolist() == [[False, True], [False, False]]


def test_a_trajectory_without_turns_is_a_row_of_nothing():
    table = tabulate([trajectory(0, 0), trajectory(0, 1, ok(2.0))], profiling)
    assert table.turn_mask.tolist() == [[False], [True]]
    assert summary(tabulate([trajectory(0, 0)], profiling))["correct"].value == 0, "and counts as a failure"


def test_fast_at_p_asks_for_correctness_and_speed():
    correct, speedup = torch.tensor([True, True, True, False]), torch.tensor([0.9, 1.0, 1.5, 3.0])
    assert fast_at(correct, speedup, 1.0).tolist() == [False, True, True, False]
    assert fast_at(correct, speedup, 1.5).tolist() == [False, False, True, False]


def test_every_sample_of_a_prompt_counts():
    table = tabulate([trajectory(0, i, ok(1.3) if i < 4 else WRONG) for i in range(16)], profiling)
    fast = summary(table)["fast@1.2"]
    assert (fast.value, fast.samples) == (0.25, 16)


def test_last_turn_and_best_of_history():
    table = summary(tabulate([trajectory(0, 0, ok(1.6), WRONG), trajectory(1, 0, WRONG, ok(1.2))], profiling))
    assert [table[f"fast@{p}"].value for p in ("1", "1.2", "1.5", "2")] == [0.5, 0.5, 0, 0]
    assert [table[f"best/fast@{p}"].value for p in ("1", "1.2", "1.5", "2")] == [1, 1, 0.5, 0]
    assert table["correct"].value == 0.5
    assert table["best/correct"].value == 1


def test_the_best_of_history_is_the_fastest_correct_answer_so_far():
    correct = torch.tensor([[False, True, True, False]])
    best_correct, best_speedup = best_of_history(correct, torch.tensor([[5.0, 1.0, 2.0, 7.0]]))
    assert best_correct.tolist() == [[False, True, True, True]]
    assert best_speedup.tolist() == [[0, 1, 2, 2]]


def test_a_table_can_be_cut_after_some_turns():
    table = tabulate([trajectory(0, 0, ok(1.6), WRONG)], profiling)
    assert summary(table.first(1))["fast@1.5"].value == 1
    assert summary(table)["fast@1.5"].value == 0


def test_hacks_and_lazy_answers_are_shares_of_all_answers():
    table = summary(tabulate([trajectory(0, 0, HACK, ok(1.0, lazy=True)), trajectory(1, 0, WRONG, HACK)], profiling))
    assert (table["hack"].value, table["lazy"].value, table["hack"].samples) == (0.5, 0.25, 4)


def test_wilsons_interval_agrees_with_tables():
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson(1.0, 20) == pytest.approx((0.8389, 1.0), abs=1e-4)


def test_samples_that_repeat_one_another_do_not_narrow_the_interval():
    once = estimate(torch.tensor([True, False, True, False]), torch.arange(4))
    eightfold = estimate(torch.tensor([True, False, True, False]).repeat(8), torch.arange(4).repeat(8))
    assert (eightfold.low, eightfold.high) == pytest.approx((once.low, once.high))
    values = torch.tensor([1.0, 2.0, 4.0, 0.0])
    once, eightfold = estimate(values, torch.arange(4)), estimate(values.repeat(8), torch.arange(4).repeat(8))
    assert (eightfold.low, eightfold.high) == pytest.approx((once.low, once.high))


def test_independent_samples_give_about_the_textbook_interval():
    values = torch.rand(60, generator=torch.Generator().manual_seed(0))
    margin = 1.96 * values.std().item() / math.sqrt(60)
    found = estimate(values, torch.arange(60))
    assert (found.high - found.low) / 2 == pytest.approx(margin, rel=0.1)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    """30 tasks of unequal difficulty, 4 samples each, drawn 400 times."""
    generator = torch.Generator().manual_seed(0)
    tasks = torch.arange(30).repeat_interleave(4)
    hits = 0
    for _ in range(400):
        difficulty = torch.rand(30, generator=generator)[tasks]  # mean 1/2
        found = estimate(torch.rand(120, generator=generator) < difficulty, tasks)
        hits += found.low <= 0.5 <= found.high
    assert 0.92 <= hits / 400 <= 0.98


def test_a_task_with_many_samples_is_still_one_task():
    found = estimate(torch.tensor([True] * 18 + [False] * 2), torch.tensor([0] * 18 + [1, 2]))
    low, high = wilson(0.9, 20)
    assert found.high - found.low > 1.5 * (high - low)


@pytest.mark.parametrize(
    ("before", "after"),
    [([0] * 48, [0] * 48), ([0, 1], [1, 1]), ([0, 1] * 18, [1, 1, 1, 0] * 9), ([1, 0], [0, 1])],
)
def test_the_change_of_a_share_has_the_interval_that_a_comparison_of_studies_gives_it(before, after):
    """It never leaves [-1, 1], and where no task has changed it is as wide as what was not seen allows."""
    of = lambda right: tabulate([trajectory(g, 0, ok(1.3) if hit else WRONG) for g, hit in enumerate(right)], profiling)
    found, expected = (
        difference(of(before), of(after))["correct"],
        paired(torch.tensor(before, dtype=torch.float64), torch.tensor(after, dtype=torch.float64)),
    )
    assert (found.value, found.low, found.high) == (expected.value, expected.low, expected.high)
    assert -1 <= found.low < found.value < found.high <= 1


def test_a_share_has_one_interval_in_training_and_in_studies():
    values, tasks = torch.rand(96, generator=torch.Generator().manual_seed(0)) < 0.3, torch.arange(24).repeat(4)
    sums = torch.zeros(24).index_add(0, tasks, values.float())
    assert estimate(values, tasks) == bootstrap(sums[:, None], torch.full((24, 1), 4.0))[0]


def test_two_policies_are_compared_task_by_task():
    before = [trajectory(0, 0, ok(1.0)), trajectory(0, 1, WRONG), trajectory(1, 0, WRONG), trajectory(2, 0, WRONG)]
    after = [trajectory(2, 0, ok(2.0)), trajectory(1, 0, WRONG), trajectory(0, 0, ok(2.0)), trajectory(1, 1, ok(1.0))]
    changes = difference(tabulate(before, profiling), tabulate(after, profiling))
    expected = change_of(torch.zeros(3), torch.tensor([0.5, 0.5, 1.0]))
    assert (changes["correct"].value, changes["correct"].low) == pytest.approx((expected.value, expected.low))
    assert changes["fast@1.5"].value == pytest.approx(2 / 3)
    without_one = difference(tabulate(before, profiling), tabulate(after[1:], profiling))["correct"]
    assert (without_one.value, without_one.samples) == (pytest.approx(0.5), 2), "a task that one side lacks is left out"


def test_one_task_and_no_task_claim_nothing():
    assert math.isnan(estimate(torch.tensor([1.0, 2.0]), torch.zeros(2)).low)
    share = estimate(torch.ones(64, dtype=torch.bool), torch.zeros(64))
    assert share.low < 0.3
    for samples in range(2, 40):
        share = estimate(torch.arange(samples) == 0, torch.zeros(samples))
        assert share.high > 0.75, "a single draw, whatever rounding does"
    assert math.isnan(estimate(torch.tensor([]), torch.tensor([])).value)


def test_an_empty_evaluation_has_no_values():
    assert all(math.isnan(found.value) for found in summary(replace(Rollouts.empty(0, 1))).values())
