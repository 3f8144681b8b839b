import math

import pytest
import torch

from drkernel.objective.metric_sums import add, means
from drkernel.objective.mismatch import LEVELS, importance_weights, rollout_correction
from drkernel.types import DrKernelError

TURNS = torch.tensor([0, 0, 1, 1, 2, 2])
TRAJECTORIES = torch.tensor([0, 0, 0, 0, 1, 1])
ALL = torch.ones(6, dtype=torch.bool)


def correct(delta, mask=ALL, turns=TURNS, trajectories=TRAJECTORIES, **options):
    """Keep mask and metrics of an engine at log-probability -1 and a trainer that is off by `delta`."""
    rollout = torch.full((len(delta),), -1.0)
    keep, tally = rollout_correction(rollout + torch.tensor(delta), rollout, turns, trajectories, mask, **options)
    return keep.int().tolist(), means(tally)


def test_the_geometric_band_is_on_the_mean_of_the_trajectory():
    assert correct([0.1, -0.1, 0.1, -0.1, 0.0019, 0.0])[0] == [1, 1, 1, 1, 1, 1], "differences that cancel pass"
    assert correct([0.0, 0.0, 0.0, 0.0, 0.0021, 0.0])[0] == [1, 1, 1, 1, 0, 0], "a mean of 0.00105 does not"
    assert correct([0.0, 0.0, 0.0, -0.0041, 0.0, 0.0])[0] == [0, 0, 0, 0, 1, 1], "all turns of the trajectory go"


@pytest.mark.parametrize(
    ("level", "kept"),
    [
        ("token", [1, 0, 1, 1, 0, 1]),
        ("turn", [1, 1, 1, 1, 0, 0]),
        ("trajectory", [1, 1, 1, 1, 0, 0]),
        ("turn_geometric", [1, 1, 1, 1, 1, 1]),
        ("geometric", [1, 1, 1, 1, 1, 1]),
    ],
)
def test_levels_differ_in_what_they_add_up(level, kept):
    """Logs of ratios; the band is [1/2, 2], that is +-0.69."""
    assert correct([0.2, -0.7, 0.3, 0.3, 0.8, 0.1], level=level, lower=0.5, upper=2.0)[0] == kept


def test_products_grow_with_length_and_geometric_means_do_not():
    delta, one = [0.1] * 100, torch.zeros(100, dtype=torch.int64)
    options = {"mask": one == 0, "turns": one, "trajectories": one, "lower": 0.5, "upper": 2.0}
    assert sum(correct(delta, level="trajectory", **options)[0]) == 0
    assert sum(correct(delta, level="geometric", **options)[0]) == 100


def test_the_geometric_mean_of_a_turn_leaves_out_other_turns_and_tokens_without_a_value():
    delta = [0.003, math.nan, -0.003, 0.0, 0.0015, 0.0]
    assert correct(delta, level="turn_geometric")[0] == [0, 0, 0, 0, 1, 1]
    assert correct(delta, level="geometric")[0] == [1, 0, 1, 1, 1, 1]
    assert correct([0.0018, math.nan, 0, 0, 0, 0], level="turn_geometric")[0] == [0, 0, 1, 1, 1, 1]


def test_the_veto_rejects_the_turn_of_the_token_and_no_other():
    delta = [0.0, 0.0, -9.3, 9.3, 0.0, 0.0]  # ln 1e-4 = -9.21
    keep, metrics = correct(delta)
    assert keep == [1, 1, 0, 0, 1, 1]
    assert metrics["mismatch/vetoed"] == pytest.approx(2 / 6)
    assert correct(delta, veto=0.0)[0] == [1] * 6
    assert correct([0.0, 0.0, -9.1, 9.1, 0.0, 0.0])[0] == [1] * 6


@pytest.mark.parametrize("level", LEVELS)
def test_only_sampled_tokens_are_looked_at(level):
    mask = torch.tensor([False, True, True, True, True, True])
    keep, metrics = correct([-50.0, 0.0, 0.0, 0.0, 0.0, 0.0], mask=mask, level=level)
    assert keep == [0, 1, 1, 1, 1, 1]
    assert metrics["mismatch/abs_delta"] == 0
    assert metrics["mrs/kept"] == 1, "of the sampled tokens, all"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_token_without_a_finite_log_probability_is_masked_and_counted(bad):
    keep, metrics = correct([0.0, bad, 0.0, 0.0, 0.0, 0.0])
    assert keep == [1, 0, 1, 1, 1, 1]
    assert metrics["mismatch/not_finite"] == pytest.approx(1 / 6)
    assert all(math.isfinite(value) for value in metrics.values())


def test_an_engine_without_log_probabilities_gets_an_answer_of_the_same_form():
    keep, metrics = correct([math.nan] * 6)
    assert keep == [0] * 6
    assert metrics["mrs/kept"] == 0
    assert metrics["mismatch/not_finite"] == 1


def test_turns_need_not_be_in_order_nor_of_equal_number():
    order = torch.tensor([4, 0, 3, 5, 1, 2])
    delta = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.1, 0.0])
    keep = correct(delta[order].tolist(), turns=TURNS[order] * 5, trajectories=TRAJECTORIES[order] - 9)[0]
    assert keep == [0, 1, 1, 0, 1, 1]


def test_perfect_agreement_measures_as_such():
    keep, metrics = correct([0.0] * 6)
    assert keep == [1] * 6
    assert metrics == {
        "mrs/kept": 1,
        "mismatch/vetoed": 0,
        "mismatch/delta": 0,
        "mismatch/abs_delta": 0,
        "mismatch/kl": 0,
        "mismatch/ess": 1,
        "mismatch/not_finite": 0,
    }


def test_the_kl_is_estimated_without_bias_and_without_going_negative():
    """Tokens come up as often as the engine samples them: 3, 2 and 1 times in 6."""
    rollout, train = torch.tensor([3, 2, 1]) / 6, torch.tensor([1, 2, 3]) / 6
    tokens = torch.tensor([0, 0, 0, 1, 1, 2])
    _, tally = rollout_correction(train[tokens].log(), rollout[tokens].log(), TURNS, TRAJECTORIES, ALL)
    kl = (rollout * (rollout / train).log()).sum().item()
    assert means(tally)["mismatch/kl"] == pytest.approx(kl)
    assert means(tally)["mismatch/ess"] == pytest.approx(1 / (rollout * (train / rollout) ** 2).sum().item())
    assert correct([0.5, 0.5, 0.5, 0.5, 0.5, 0.5])[1]["mismatch/kl"] > 0


def test_metrics_of_two_ranks_add_up_to_those_of_both():
    delta = [0.1, -0.2, 0.0, 0.3, 0.0, math.nan]
    whole = correct(delta)[1]
    rollout, train = torch.full((6,), -1.0), torch.tensor(delta) - 1
    parts = [
        rollout_correction(train[part], rollout[part], TURNS[part], TRAJECTORIES[part], ALL[part])[1]
        for part in (slice(0, 4), slice(4, 6))
    ]
    assert means(add(*parts)) == pytest.approx(whole)


def test_no_gradient_flows_through_the_correction():
    logp = torch.zeros(6, requires_grad=True)
    weights = importance_weights(logp, torch.zeros(6), TURNS, TRAJECTORIES, ALL)
    assert not weights.requires_grad


@pytest.mark.parametrize(
    ("level", "weights"),
    [
        ("token", [2.0, 0.5, 2.0, 1.0, 0.25, 0.0]),
        ("turn", [1.0, 1.0, 2.0, 2.0, 0.25, 0.0]),
        ("trajectory", [2.0, 2.0, 2.0, 2.0, 0.25, 0.0]),
    ],
)
def test_importance_weights_are_cut_at_the_cap_and_not_below(level, weights):
    ratios = torch.tensor([2.0, 0.5, 8.0, 1.0, 0.25, math.nan])
    found = importance_weights(ratios.log(), torch.zeros(6), TURNS, TRAJECTORIES, ALL, level=level, cap=2.0)
    torch.testing.assert_close(found, torch.tensor(weights))


def test_exponents_are_limited_so_that_nothing_overflows():
    train = torch.tensor([500.0, -500.0])
    ids, mask = torch.tensor([0, 1]), torch.tensor([True, True])
    weights = importance_weights(train, torch.zeros(2), ids, ids, mask, cap=math.inf)
    assert weights.log().tolist() == pytest.approx([20, -20])
    _, tally = rollout_correction(train, torch.zeros(2), ids, ids, mask)
    assert all(math.isfinite(value) for value in means(tally).values())


def test_wrong_options_are_refused_with_what_was_found_and_expected():
    with pytest.raises(DrKernelError, match="found 'sequence', expected one of token, turn, trajectory"):
        correct([0.0] * 6, level="sequence")
    with pytest.raises(DrKernelError, match=r"lower=2.0, upper=0.5"):
        correct([0.0] * 6, lower=2.0, upper=0.5)
