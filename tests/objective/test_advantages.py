import itertools

import pytest
import torch

from drkernel.objective.advantages import ADVANTAGES, grpo, rloo, trloo


def group_of(size: int, turns: int = 1):
    return torch.ones(size, turns, dtype=torch.bool), torch.zeros(size, dtype=torch.int64)


def random_table(rows: int = 14, turns: int = 3, prompts: int = 4):
    """Trajectories of 1 to `turns` turns, prompts with shuffled, non-contiguous numbers and groups of unequal size."""
    generator = torch.Generator().manual_seed(0)
    returns = torch.randn(rows, turns, generator=generator)
    exists = torch.arange(turns) < torch.randint(1, turns + 1, (rows, 1), generator=generator)
    groups = torch.randint(prompts, (rows,), generator=generator) * 17 - 3
    return torch.where(exists, returns, 0.0), exists, groups


def leave_one_out(returns, exists, groups):
    """TRLOO by its definition, one turn at a time."""
    advantages = torch.zeros_like(returns)
    for i, t in exists.nonzero().tolist():
        others = [
            returns[j, t].item() for j in range(len(groups)) if j != i and groups[j] == groups[i] and exists[j, t]
        ]
        advantages[i, t] = returns[i, t] - (sum(others) / len(others) if others else 0)
    return advantages


def test_trloo_by_hand_for_groups_that_shrink_from_turn_to_turn():
    returns = torch.tensor([[6.0, 4.0, 1.0], [3.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    exists = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    advantages = trloo(returns, exists, torch.tensor([0, 0, 0]))
    assert advantages.tolist() == [[4.5, 3, 1], [0, -3, 0], [-4.5, 0, 0]]


def test_trloo_is_its_definition_on_any_table():
    torch.testing.assert_close(trloo(*random_table()), leave_one_out(*random_table()))


@pytest.mark.parametrize(("size", "factor"), [(2, 2), (4, 4 / 3), (8, 8 / 7), (16, 16 / 15)])
def test_trloo_is_grpo_times_n_over_n_minus_1(size, factor):
    returns = torch.randn(size, 2, generator=torch.Generator().manual_seed(size))
    exists, groups = group_of(size, 2)
    torch.testing.assert_close(trloo(returns, exists, groups), factor * grpo(returns, exists, groups))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_trloo_estimates_the_gradient_without_bias_and_grpo_shrinks_it(size):
    """A bandit of three arms. All samples that a group can hold are enumerated, so the expectations are exact."""
    rewards = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64)
    probabilities = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    gradient = probabilities * (rewards - probabilities @ rewards)  # of E[R] by the logits

    arms = torch.tensor(list(itertools.product(range(3), repeat=size)))
    groups = torch.arange(len(arms)).repeat_interleave(size)
    returns, exists = rewards[arms].reshape(-1, 1), torch.ones(len(groups), 1, dtype=torch.bool)
    score = torch.eye(3, dtype=torch.float64)[arms] - probabilities
    chance = probabilities[arms].prod(1)

    def expectation(estimator):
        advantages = estimator(returns, exists, groups).view(*arms.shape, 1)
        return chance @ (advantages * score).mean(1)

    torch.testing.assert_close(expectation(trloo), gradient)
    torch.testing.assert_close(expectation(grpo), (1 - 1 / size) * gradient)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_alone_there_is_no_baseline(name):
    exists, groups = group_of(1, 2)
    assert ADVANTAGES[name](torch.tensor([[3.0, 3.0]]), exists, groups).tolist() == [[3, 3]]


@pytest.mark.parametrize("name", ADVANTAGES)
def test_a_turn_that_does_not_exist_has_no_advantage_and_does_not_count(name):
    returns, exists, groups = random_table()
    advantages = ADVANTAGES[name](returns, exists, groups)
    assert (advantages[~exists] == 0).all()
    poisoned = torch.where(exists, returns, float("nan"))
    assert ADVANTAGES[name](poisoned, exists, groups).equal(advantages)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_prompts_do_not_mix_and_the_order_of_rows_does_not_matter(name):
    returns, exists, groups = random_table()
    advantages = ADVANTAGES[name](returns, exists, groups)
    for group in groups.unique():
        rows = groups == group
        torch.testing.assert_close(ADVANTAGES[name](returns[rows], exists[rows], groups[rows]), advantages[rows])
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(ADVANTAGES[name](returns[order], exists[order], groups[order]), advantages[order])


@pytest.mark.parametrize("name", ADVANTAGES)
def test_equal_returns_give_no_signal(name):
    exists, groups = group_of(16, 3)
    assert ADVANTAGES[name](torch.full((16, 3), 1.1), exists, groups).abs().max() < 1e-5


def test_flaw_23_the_std_flag_holds_for_several_turns():
    returns = torch.tensor([[1.0, 30.0], [3.0, 10.0]])
    exists, groups = group_of(2, 2)
    expected = torch.tensor([[-1.0, 1.0], [1.0, -1.0]]) / 2**0.5
    torch.testing.assert_close(grpo(returns, exists, groups, normalise_std=True), expected, atol=1e-5, rtol=0)
    assert grpo(returns, exists, groups).tolist() == [[-1, 10], [1, -10]]


def test_rloo_gives_all_turns_of_a_trajectory_the_advantage_of_its_total_return():
    returns = torch.tensor([[6.0, 4.0, 1.0], [3.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    exists = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    advantages = rloo(returns, exists, torch.tensor([0, 0, 0]))
    assert advantages.tolist() == [[4.5, 4.5, 4.5], [0, 0, 0], [-4.5, 0, 0]]


def test_rloo_counts_a_trajectory_of_which_some_turn_counts():
    returns, counted = torch.tensor([[6.0, 4.0], [3.0, 1.0], [0.0, 0.0]]), torch.tensor([[0, 1], [1, 1], [0, 0]]) > 0
    exists, groups = group_of(3, 2)
    assert rloo(returns, exists, groups, counted)[:2].tolist() == [[3, 3], [-3, -3]]


def test_for_a_single_turn_rloo_is_trloo():
    returns, exists, groups = random_table(turns=1)
    assert rloo(returns, exists, groups).equal(trloo(returns, exists, groups))


@pytest.mark.parametrize("estimator", [grpo, trloo, rloo])
def test_flaw_19_what_leaves_the_baseline_leaves_it_altogether(estimator):
    """The advantages of those that count are those of a group without the others."""
    returns, counted = torch.tensor([[1.0], [2.0], [6.0], [9.0]]), torch.tensor([[True], [True], [True], [False]])
    exists, groups = group_of(4)
    advantages = estimator(returns, exists, groups, counted)
    assert advantages[:3].equal(estimator(returns[:3], exists[:3], groups[:3]))
    assert advantages[:3].sum() == 0
    assert advantages[3] == 9 - 3, "and an outsider is compared with those that count"
    assert estimator(returns, exists, groups)[:3].sum() != 0, "unlike in the published code, where they stay"
