import itertools
from functools import partial

import pytest
import torch

from drkernel.config.registry import bind
from drkernel.objective.advantages import ADVANTAGES, grpo, rloo, trloo

ESTIMATORS = {name: entry for name, entry in ADVANTAGES.items() if not isinstance(entry, type)}
ESTIMATORS["grpo with std"] = partial(grpo, std=True)
"""The estimators that remember nothing, which compare a group with itself and with nothing else."""


def group_of(size: int, turns: int = 1):
    return torch.ones(size, turns, dtype=torch.bool), torch.zeros(size, dtype=torch.int64)


def random_table(rows: int = 14, turns: int = 3, prompts: int = 4):
    """Trajectories of 1 to `turns` turns, prompts with shuffled, non-contiguous numbers and groups of unequal size."""
    generator = torch.Generator().manual_seed(0)
    returns = torch.randn(rows, turns, generator=generator)
    turn_mask = torch.arange(turns) < torch.randint(1, turns + 1, (rows, 1), generator=generator)
    groups = torch.randint(prompts, (rows,), generator=generator) * 17 - 3
    return torch.where(turn_mask, returns, 0.0), turn_mask, groups


def leave_one_out(returns, turn_mask, groups):
    """TRLOO by its definition, one turn at a time."""
    advantages = torch.zeros_like(returns)
    for i, t in turn_mask.nonzero().tolist():
        others = [
            returns[j, t].item() for j in range(len(groups)) if j != i and groups[j] == groups[i] and turn_mask[j, t]
        ]
        advantages[i, t] = returns[i, t] - (sum(others) / len(others) if others else 0)
    return advantages


def test_trloo_by_hand_for_groups_that_shrink_from_turn_to_turn():
    returns = torch.tensor([[6.0, 4.0, 1.0], [3.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    turn_mask = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    advantages = trloo(returns, turn_mask, torch.tensor([0, 0, 0]))
    assert advantages.tolist() == [[4.5, 3, 1], [0, -3, 0], [-4.5, 0, 0]]


def test_trloo_is_its_definition_on_any_table():
    torch.testing.assert_close(trloo(*random_table()), leave_one_out(*random_table()))


@pytest.mark.parametrize(("size", "factor"), [(2, 2), (4, 4 / 3), (8, 8 / 7), (16, 16 / 15)])
def test_trloo_is_grpo_times_n_over_n_minus_1(size, factor):
    returns = torch.randn(size, 2, generator=torch.Generator().manual_seed(size))
    turn_mask, groups = group_of(size, 2)
    torch.testing.assert_close(trloo(returns, turn_mask, groups), factor * grpo(returns, turn_mask, groups))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_trloo_estimates_the_gradient_without_bias_and_grpo_shrinks_it(size):
    """A bandit of three arms. All samples that a group can hold are enumerated, so the expectations are exact."""
    rewards = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64)
    probabilities = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    gradient = probabilities * (rewards - probabilities @ rewards)  # of E[R] by the logits

    arms = torch.tensor(list(itertools.product(range(3), repeat=size)))
    groups = torch.arange(len(arms)).repeat_interleave(size)
    returns, turn_mask = rewards[arms].reshape(-1, 1), torch.ones(len(groups), 1, dtype=torch.bool)
    score = torch.eye(3, dtype=torch.float64)[arms] - probabilities
    chance = probabilities[arms].prod(1)

    def expectation(estimator):
        advantages = estimator(returns, turn_mask, groups).view(*arms.shape, 1)
        return chance @ (advantages * score).mean(1)

    torch.testing.assert_close(expectation(trloo), gradient)
    torch.testing.assert_close(expectation(grpo), (1 - 1 / size) * gradient)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_alone_there_is_no_baseline(name):
    turn_mask, groups = group_of(1, 2)
    assert ESTIMATORS[name](torch.tensor([[3.0, 3.0]]), turn_mask, groups).tolist() == [[3, 3]]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_turn_that_does_not_exist_has_no_advantage_and_does_not_count(name):
    returns, turn_mask, groups = random_table()
    advantages = ESTIMATORS[name](returns, turn_mask, groups)
    assert (advantages[~turn_mask] == 0).all()
    poisoned = torch.where(turn_mask, returns, float("nan"))
    assert ESTIMATORS[name](poisoned, turn_mask, groups).equal(advantages)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_prompts_do_not_mix_and_the_order_of_rows_does_not_matter(name):
    returns, turn_mask, groups = random_table()
    advantages = ESTIMATORS[name](returns, turn_mask, groups)
    for group in groups.unique():
        rows = groups == group
        torch.testing.assert_close(ESTIMATORS[name](returns[rows], turn_mask[rows], groups[rows]), advantages[rows])
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(ESTIMATORS[name](returns[order], turn_mask[order], groups[order]), advantages[order])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_returns_give_no_signal(name):
    turn_mask, groups = group_of(16, 3)
    assert ESTIMATORS[name](torch.full((16, 3), 1.1), turn_mask, groups).abs().max() < 1e-5


def test_the_std_flag_holds_for_several_turns():
    returns = torch.tensor([[1.0, 30.0], [3.0, 10.0]])
    turn_mask, groups = group_of(2, 2)
    expected = torch.tensor([[-1.0, 1.0], [1.0, -1.0]]) / 2**0.5
    torch.testing.assert_close(grpo(returns, turn_mask, groups, std=True), expected, atol=1e-5, rtol=0)
    assert grpo(returns, turn_mask, groups).tolist() == [[-1, 10], [1, -10]]


def test_rloo_gives_all_turns_of_a_trajectory_the_advantage_of_its_total_return():
    returns = torch.tensor([[6.0, 4.0, 1.0], [3.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    turn_mask = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    advantages = rloo(returns, turn_mask, torch.tensor([0, 0, 0]))
    assert advantages.tolist() == [[4.5, 4.5, 4.5], [0, 0, 0], [-4.5, 0, 0]]


def test_rloo_counts_a_trajectory_of_which_some_turn_counts():
    returns, counted = torch.tensor([[6.0, 4.0], [3.0, 1.0], [0.0, 0.0]]), torch.tensor([[0, 1], [1, 1], [0, 0]]) > 0
    turn_mask, groups = group_of(3, 2)
    assert rloo(returns, turn_mask, groups, counted)[:2].tolist() == [[3, 3], [-3, -3]]


def test_for_a_single_turn_rloo_is_trloo():
    returns, turn_mask, groups = random_table(turns=1)
    assert rloo(returns, turn_mask, groups).equal(trloo(returns, turn_mask, groups))


@pytest.mark.parametrize("estimator", [grpo, trloo, rloo])
def test_what_leaves_the_baseline_leaves_it_altogether(estimator):
    """The advantages of those that count are those of a group without the others."""
    returns, counted = torch.tensor([[1.0], [2.0], [6.0], [9.0]]), torch.tensor([[True], [True], [True], [False]])
    turn_mask, groups = group_of(4)
    advantages = estimator(returns, turn_mask, groups, counted)
    assert advantages[:3].equal(estimator(returns[:3], turn_mask[:3], groups[:3]))
    assert advantages[:3].sum() == 0
    assert advantages[3] == 9 - 3, "and an outsider is compared with those that count"
    assert estimator(returns, turn_mask, groups)[:3].sum() != 0, "unlike in the published code, where they stay"


class RunningMean:
    """An estimator with state: the baseline is the mean return of all turns so far, over all prompts and steps."""

    def __init__(self, *, start: float = 0.0):
        self.total, self.number = start, 1

    def __call__(self, returns, turn_mask, groups, baseline=None):
        advantages = torch.where(turn_mask, returns - self.total / self.number, 0.0)
        counted = turn_mask if baseline is None else turn_mask & baseline
        self.total, self.number = self.total + returns[counted].sum().item(), self.number + int(counted.sum())
        return advantages

    def state_dict(self):
        return {"total": self.total, "number": self.number}

    def load_state_dict(self, state):
        self.total, self.number = state["total"], state["number"]


def test_an_estimator_may_remember_what_it_has_seen():
    """All that it takes: a class, whose options are those of its `__init__`, and its line in the registry."""
    turn_mask, groups = group_of(2)
    estimator = bind(RunningMean, {"start": 1.0, "std": True})
    assert estimator(torch.tensor([[2.0], [3.0]]), turn_mask, groups).tolist() == [[1.0], [2.0]]
    resumed = bind(RunningMean, {})
    resumed.load_state_dict(estimator.state_dict())
    assert resumed(torch.tensor([[2.0], [3.0]]), turn_mask, groups).tolist() == [[0.0], [1.0]]
