import torch

from drkernel.objective.advantages import trloo
from drkernel.objective.returns import reward_to_go, without_regressions

YES, NO = True, False


def test_each_turn_is_worth_all_that_follows_it():
    rewards = torch.tensor([[1.0, 0.0, 4.0], [2.0, 3.0, 0.0]])
    turn_mask = torch.tensor([[YES, YES, YES], [YES, YES, NO]])
    assert reward_to_go(rewards, turn_mask).tolist() == [[5, 4, 4], [5, 3, 0]]
    assert reward_to_go(rewards, turn_mask, gamma=0.5).tolist() == [[2, 2, 4], [3.5, 3, 0]]
    assert reward_to_go(rewards, turn_mask, gamma=0.0).tolist() == [[1, 0, 4], [2, 3, 0]]


def test_what_stands_in_for_missing_turns_is_ignored():
    rewards = torch.tensor([[1.0, float("nan")]])
    assert reward_to_go(rewards, torch.tensor([[YES, NO]])).tolist() == [[1, 0]]


def test_the_rewards_are_left_as_they_were():
    rewards = torch.tensor([[1.0, 1.0]])
    reward_to_go(rewards, torch.ones(1, 2, dtype=torch.bool))
    assert rewards.tolist() == [[1, 1]]


def test_forgetting_regressions_drops_failures_after_a_success_only():
    rewards = torch.tensor([[0.0, 0.0, 2.0], [2.0, 0.0, 0.0], [2.0, -1.0, 3.0], [0.0, 2.0, 0.0]])
    turn_mask = torch.ones(4, 3, dtype=torch.bool)
    turn_mask[3, 2] = False
    kept = without_regressions(rewards, turn_mask)
    assert kept.tolist() == [[YES, YES, YES], [YES, NO, NO], [YES, NO, YES], [YES, YES, NO]]


def test_a_return_reaches_over_a_forgotten_turn_and_leaves_out_its_reward():
    rewards = torch.tensor([[2.0, -1.0, 3.0]])
    kept = without_regressions(rewards, torch.ones(1, 3, dtype=torch.bool))
    assert reward_to_go(rewards, kept).tolist() == [[5, 0, 3]]


def test_breaking_a_working_kernel_is_punished():
    rewards = torch.tensor([[2.0, 0.0], [2.0, 2.0]])
    turn_mask, groups = torch.ones(2, 2, dtype=torch.bool), torch.tensor([0, 0])
    assert trloo(reward_to_go(rewards, turn_mask), turn_mask, groups)[0, 1] == -2
    forgiving = without_regressions(rewards, turn_mask)
    assert trloo(reward_to_go(rewards, forgiving), forgiving, groups)[0, 1] == 0, "the published code's behaviour"
