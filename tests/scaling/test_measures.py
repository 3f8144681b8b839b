import dataclasses
import itertools
import math
import statistics

import pytest
import torch

from drkernel.objective.intervals import RESAMPLES, best_of, bootstrap, paired, pass_at, resamples
from drkernel.objective.metrics import summary as training_summary
from drkernel.objective.rewards import profiling
from drkernel.objective.rollouts import tabulate
from drkernel.scaling import measures
from drkernel.scaling.records import Record
from drkernel.scaling.trials import Trials, aligned
from drkernel.types import Trajectory, Turn, Verdict
from tests.scaling import synthetic

WRONG, HACK = Verdict("incorrect", "wrong_values"), Verdict("hack", "no_triton_launch", speedup=9.0)


def ok(speedup: float, **over: float) -> Verdict:
    return Verdict("ok", "faster", speedup=speedup, evidence={"speedup_over": over} if over else {})


def trial(task: str, number: int, *verdicts: Verdict, tokens: int = 100, chains: int = 1) -> list[Record]:
    """A trial of one chain, or of chains that take turns."""
    return [
        Record(
            task=task,
            family=task[0],
            level=None,
            split="test",
            strategy="s",
            trial=number,
            chain=call % chains,
            turn=call // chains,
            call=call,
            shown=tuple(range(call % chains, call, chains)),
            prompt_tokens=10,
            tokens=tokens,
            finished=True,
            source="",
            verdict=verdict,
            generate_s=1.0,
            judge_s=0.5,
            started=0.0,
            model="m",
        )
        for call, verdict in enumerate(verdicts)
    ]


def test_the_end_of_a_trial_agrees_with_the_metrics_of_training():
    verdicts = {
        ("a", 0): (WRONG, ok(1.3)),
        ("a", 1): (ok(2.5), HACK),
        ("b", 0): (ok(0.9), ok(1.1)),
        ("b", 1): (WRONG, WRONG),
    }
    found = measures.summary(Trials.of(r for (task, n), some in verdicts.items() for r in trial(task, n, *some)))
    turns = lambda some: [Turn([0], [1], [0.0], verdict=verdict) for verdict in some]
    rollouts = [Trajectory(task, ord(task), n, turns(some)) for (task, n), some in verdicts.items()]
    theirs = training_summary(tabulate(rollouts, profiling))
    for name in ("correct", "fast@1", "fast@1.2", "fast@1.5", "fast@2"):
        assert found[name].value == theirs[f"best/{name}"].value
        assert found[f"last/{name}"].value == theirs[name].value
    assert found["honest"].value == 1 - theirs["hack"].value


def test_calls_that_never_happened_are_no_answers():
    lazy = Verdict("ok", "lazy", speedup=1.0, lazy=True)
    found = measures.summary(Trials.of([*trial("a", 0, HACK), *trial("a", 1, ok(1.3), lazy, ok(2.0))]))
    assert (found["honest"].value, found["lazy"].value, found["cost/calls"].value) == (0.75, 0.25, 2)


def test_a_hack_is_never_fast_and_never_correct():
    found = measures.summary(Trials.of(trial("a", 0, HACK)))
    assert found["correct"].value == found["fast@0.8"].value == found["honest"].value == 0
    assert math.isnan(found["speedup"].value)


def test_a_budget_buys_the_calls_that_it_pays_for_in_full():
    run = Trials.of(trial("a", 0, WRONG, ok(1.1), ok(1.6), tokens=100))
    fast = lambda axis, budgets: [e.value for e in measures.curve(run, budgets, axis, 1.5)]
    assert fast("calls", [0, 1, 2, 3, 9]) == [0, 0, 0, 1, 1]
    assert fast("tokens", [299, 300]) == [0, 1]
    assert fast("seconds", [4.4, 4.5]) == [0, 1]


def test_a_trial_that_ended_early_keeps_what_it_had():
    run = Trials.of(trial("a", 0, ok(2.0)) + trial("b", 0, WRONG, WRONG, WRONG))
    assert [e.value for e in measures.curve(run, [1, 3], "calls", 1.5)] == [0.5, 0.5]
    assert [e.value for e in measures.curve(run, [1, 3], "calls", 1.5, view="last")] == [0.5, 0.5]


def test_the_last_answer_may_be_worse_than_the_best():
    found = measures.summary(Trials.of(trial("a", 0, ok(2.0), WRONG)))
    assert (found["fast@1.5"].value, found["last/fast@1.5"].value) == (1, 0)


def test_the_order_of_the_lines_does_not_matter():
    rows = synthetic.records(tasks=6)
    rows = [row for row in rows if row.strategy == "parallel 8"]
    assert measures.summary(Trials.of(rows)) == measures.summary(Trials.of(reversed(rows)))


def test_speedups_are_averaged_geometrically_over_correct_ones():
    run = Trials.of(trial("a", 0, ok(4.0)) + trial("b", 0, ok(1.0)) + trial("c", 0, WRONG))
    assert measures.summary(run)["speedup"].value == pytest.approx(2.0)
    assert measures.summary(run)["speedup"].samples == 2


def test_another_baseline_counts_only_tasks_that_have_it():
    rows = trial("a", 0, ok(2.0, compile=1.0)) + trial("b", 0, ok(3.0)) + trial("c", 0, WRONG)
    found = measures.summary(Trials.of(rows))
    assert (found["compile/fast@1"].value, found["compile/fast@1"].samples) == (0.5, 2)
    assert found["compile/fast@1.2"].value == 0


def test_another_baseline_has_the_same_tasks_in_all_runs():
    solves = Trials.of(trial("a", 0, ok(3.0)) + trial("b", 0, ok(2.0, compile=1.1)))
    fails = Trials.of(trial("a", 0, WRONG) + trial("b", 0, WRONG, ok(2.0, compile=1.3)))
    found = aligned({"solves": solves, "fails": fails})
    for run in found.values():
        fast = measures.summary(run)["compile/fast@1"]
        assert (fast.value, fast.samples) == (1, 1)
        assert measures.curve(run, [2], "calls", 1.0, baseline="compile")[0].value == 1


def test_a_run_that_solves_nothing_has_a_place_in_every_comparison_and_one_without_figures_in_none():
    runs = {"best": (ok(2.0, compile=1.1),), "none": (WRONG,), "uncompared": (ok(2.0),)}
    found = aligned({name: Trials.of(trial("a", 0, *verdicts)) for name, verdicts in runs.items()})
    shares = {name: measures.summary(run).get("compile/fast@1") for name, run in found.items()}
    assert (shares["best"].value, shares["none"].value, shares["uncompared"]) == (1, 0, None)


def test_turns_are_counted_by_their_place_in_the_chain():
    places = measures.per_turn(Trials.of(trial("a", 0, WRONG, WRONG, ok(1.3), WRONG, chains=2)))
    assert [place["fast@1.2"].value for place in places] == [0, 0.5]


def test_only_answers_to_the_bare_prompt_are_independent():
    rows = trial("a", 0, WRONG, ok(2.0), ok(2.0), ok(2.0), chains=2)
    assert list(measures.of_k_samples(Trials.of(rows))) == [1, 2]
    assert measures.of_k_samples(Trials.of(rows))[2]["pass"].value == 1


def test_the_best_of_k_averages_speedups_geometrically():
    rows = trial("a", 0, ok(4.0), ok(2.0), chains=2) + trial("b", 0, WRONG, ok(0.5), chains=2)
    found = measures.of_k_samples(Trials.of(rows))
    assert found[1]["speedup"].value == pytest.approx((4 * 2 * 1 * 1) ** 0.25)
    assert found[2]["speedup"].value == pytest.approx((4 * 1) ** 0.5)


def test_a_run_reaches_what_its_dearest_trial_cost():
    run = Trials.of(trial("a", 0, WRONG, WRONG) + trial("b", 0, WRONG, tokens=700))
    assert [run.reach(axis) for axis in measures.AXES] == [2, 700, 3]


def test_every_run_has_a_rung_at_which_it_shows_its_end():
    runs = [Trials.of(trial("a", 0, *[ok(2.0)] * n, tokens=tokens)) for n, tokens in ((1, 6449), (3, 100), (5, 12_888))]
    for axis in measures.AXES:
        budgets = measures.table_budgets(runs, axis)
        assert max(budgets) >= max(run.reach(axis) for run in runs)
        for run in runs:
            budget = measures.last_budget(run, axis)
            assert budget in budgets and budget >= run.reach(axis)
            assert measures.curve(run, [budget], axis, 1.5)[0].value == 1
    assert measures.last_budget(runs[0], "tokens") == 6500


def test_curves_end_exactly_at_the_reach_of_their_run():
    runs = [Trials.of(trial("a", 0, *[WRONG] * n, ok(2.0), tokens=333)) for n in (2, 6)]
    for axis in measures.AXES:
        points = measures.grid(runs, axis)
        assert points[-1] == max(run.reach(axis) for run in runs)
        for run in runs:
            mine = measures.within(points, run.reach(axis))
            assert [e.value for e in measures.curve(run, mine, axis, 1.5)][-2:] == [0, 1]


@pytest.mark.parametrize(("n", "right", "k"), [(5, 2, 1), (5, 2, 3), (6, 0, 2), (4, 4, 4)])
def test_pass_at_k_is_the_share_of_choices_with_a_right_one(n, right, k):
    choices = list(itertools.combinations([True] * right + [False] * (n - right), k))
    assert pass_at(n, right, k) == pytest.approx(statistics.mean(map(any, choices)))


def test_best_of_k_is_the_mean_best_of_all_choices_ties_included():
    values = [1.0, 1.0, 2.5, 0.0, 3.0]
    for k in range(1, 6):
        choices = itertools.combinations(values, k)
        assert best_of(torch.tensor(values), k) == pytest.approx(statistics.mean(map(max, choices)))
    assert math.isnan(best_of(torch.tensor(values), 6))


def test_the_interval_of_a_mean_is_that_of_resampled_tasks():
    torch.manual_seed(0)
    means = torch.rand(200, 1)
    found = bootstrap(means, torch.ones(200, 1), is_proportion=False)[0]
    error = means.std().item() / math.sqrt(200)
    assert (found.high - found.low) / (2 * 1.96 * error) == pytest.approx(1, abs=0.12)
    assert resamples(200).shape == (RESAMPLES, 200)


def test_every_task_is_drawn_equally_often():
    drawn = resamples(7).mean(0)
    assert drawn.sub(1).abs().max() < 0.1


def test_samples_of_one_task_are_not_independent():
    once = bootstrap(torch.tensor([[1.0], [0.0]] * 10), torch.ones(20, 1))[0]
    often = bootstrap(torch.tensor([[8.0], [0.0]] * 10), torch.full((20, 1), 8.0))[0]
    assert (once.low, once.high) == (often.low, often.high)


@pytest.mark.parametrize("trials", [1, 2, 4])
def test_the_bounds_of_a_share_grow_with_every_hit(trials):
    bounds = []
    for hits in range(12):
        sums = torch.zeros(32, 1)
        sums[:hits] = 1
        found = bootstrap(sums, torch.full((32, 1), float(trials)))[0]
        bounds.append((found.low, found.high))
    assert bounds[0] == pytest.approx((0, 0.107), abs=1e-3)
    assert [low for low, _ in bounds] == sorted(low for low, _ in bounds)
    assert [high for _, high in bounds] == sorted(high for _, high in bounds)


def test_one_task_says_nothing_of_others():
    found = bootstrap(torch.tensor([[3.0]]), torch.tensor([[6.0]]), is_proportion=False)[0]
    assert found.value == 0.5 and math.isnan(found.low)


def test_a_paired_difference_is_surer_than_its_sides():
    torch.manual_seed(0)
    first = torch.rand(60)
    side = bootstrap(first[:, None], torch.ones(60, 1), is_proportion=False)[0]
    change = paired(first, first + 0.05)
    assert 0 < change.low < 0.05 < change.high
    assert (change.high - change.low) < 0.2 * (side.high - side.low)
    assert (change.better, change.worse) == (1, 0)


def test_no_difference_on_any_task_seen_leaves_room_for_others():
    none = paired(torch.zeros(32), torch.zeros(32))
    assert (none.value, none.low, none.high) == pytest.approx((0, -0.107, 0.107), abs=1e-3)
    one = paired(torch.zeros(32), torch.tensor([1.0] + [0.0] * 31))
    assert none.low < one.low < 0 and one.high > none.high
    every = paired(torch.zeros(32), torch.ones(32))
    assert (every.value, every.high) == (1, 1) and every.low == pytest.approx(0.893, abs=1e-3)


def test_a_comparison_is_over_the_tasks_of_both():
    first = Trials.of(trial("a", 0, WRONG) + trial("b", 0, ok(2.0)) + trial("c", 0, ok(9.0)))
    other = Trials.of(trial("a", 0, ok(1.3)) + trial("b", 0, ok(3.0)) + trial("d", 0, ok(9.0)))
    found = measures.compare(first, other, 1, "calls")
    assert (found["correct"].value, found["correct"].tasks, found["correct"].better) == (0.5, 2, 0.5)
    assert (found["speedup"].value, found["speedup"].tasks) == (pytest.approx(1.5), 1)


def test_what_is_right_and_has_no_time_is_in_no_ratio_of_speedups():
    untimed = Verdict("ok", "right")  # as KernelBench's criterion says of a time that it cannot use
    first, other = (
        Trials.of(trial("a", 0, ok(4.0)) + trial("b", 0, ok(2.0))),
        Trials.of(trial("a", 0, untimed) + trial("a", 1, ok(4.0)) + trial("b", 0, untimed)),
    )
    found = measures.compare(first, other, 1, "calls")["speedup"]
    assert (found.value, found.tasks) == (pytest.approx(1.0), 1)


def test_runs_are_compared_at_the_budget_that_both_had():
    once = Trials.of(trial("a", 0, WRONG) + trial("b", 0, ok(1.5)))
    often = Trials.of(trial("a", 0, WRONG, WRONG, ok(2.0)) + trial("b", 0, ok(1.5), ok(3.0)))
    assert measures.common_reach(once, often, "calls") == measures.common_reach(often, once, "calls") == 1
    found = measures.compare(once, often, 1, "calls")
    assert (found["correct"].value, found["speedup"].value) == (0, pytest.approx(1))
    assert measures.compare(once, often, 3, "calls")["correct"].value == 0.5


def test_an_operator_that_a_task_holds_twice_counts_once():
    rows = trial("generated/relu+relu/00000000", 0, ok(2.0)) + trial("generated/relu+scale/00000001", 0, WRONG)
    assert measures.by_operator(Trials.of(rows)) == {"scale": (0, 1), "relu": (0.5, 2)}


def test_families_levels_and_operators():
    rows = [row for row in synthetic.records(tasks=9, trials=1) if row.strategy == "managed w=4"]
    run = Trials.of(rows)
    assert sorted(measures.breakdown(run, run.families)) == sorted(set(run.families))
    assert list(measures.breakdown(run, run.levels)) == [1, 2, 3]
    shares = [share for share, _ in measures.by_operator(run).values()]
    assert shares == sorted(shares) and "softmax" in measures.by_operator(run)
    assert sum(measures.reasons(rows).values()) == len(rows)


def test_the_share_of_the_limit_is_a_median_over_correct_completions_by_level():
    def at(share, speedup=1.5):
        return dataclasses.replace(ok(speedup), evidence={"roofline": {"share": share}})

    hack = dataclasses.replace(HACK, evidence={"roofline": {"share": 0.99}})
    rows = trial("a", 0, at(0.2), at(0.4), hack) + trial("b", 0, at(0.9), WRONG) + trial("c", 0, ok(2.0), at(None))
    levels = {"a": 1, "b": 2, "c": 3}
    run = Trials.of([dataclasses.replace(row, level=levels[row.task]) for row in rows])
    found = measures.breakdown(run, run.levels)
    shares = {level: row["roofline"] for level, row in found.items() if "roofline" in row}
    assert {level: share.value for level, share in shares.items()} == pytest.approx({1: 0.3, 2: 0.9})
    assert {level: share.samples for level, share in shares.items()} == {1: 2, 2: 1}
    assert measures.summary(run)["roofline"].value == pytest.approx(0.4)
