"""Packing is a change of layout only: nothing is lost, nothing is trained twice, nothing leaks between rows."""

import torch

from drkernel.training.packing import pack, split, spread
from drkernel.types import Trajectory, Turn


def episode(*lengths, first_token=0):
    tokens = iter(range(first_token, 10_000))

    def take(n):
        return [next(tokens) for _ in range(n)]

    turns = [Turn(take(prompt), take(answer), [-0.5] * answer) for prompt, answer in lengths]
    return Trajectory("task", 0, 0, turns)


EPISODES = [episode((3, 2), (2, 4)), episode((4, 1), first_token=100), episode((2, 2), (1, 1), (1, 3), first_token=200)]


def test_a_trajectory_is_one_row_of_all_its_tokens_in_order():
    batch = pack(EPISODES)
    assert batch.cu_seqlens.tolist() == [0, 11, 16, 26]
    assert batch.tokens[:11].tolist() == list(range(11))
    assert batch.positions[11:16].tolist() == [0, 1, 2, 3, 4]
    assert batch.trajectory_ids.tolist() == [0] * 11 + [1] * 5 + [2] * 10


def test_only_sampled_tokens_are_trained_and_each_knows_its_turn():
    batch = pack(EPISODES)
    assert batch.loss_mask[:11].tolist() == [False] * 3 + [True] * 2 + [False] * 2 + [True] * 4
    assert batch.turn_ids[:11].tolist() == [-1] * 3 + [0] * 2 + [-1] * 2 + [1] * 4
    assert sorted(set(batch.turn_ids[batch.loss_mask].tolist())) == [0, 1, 3, 6, 7, 8]
    assert torch.equal(batch.rollout_logprobs != 0, batch.loss_mask)


def test_one_row_per_turn_repeats_the_prefix_and_trains_each_token_once():
    merged, separate = pack(EPISODES), pack(EPISODES, layout="turn")
    assert len(separate.cu_seqlens) - 1 == sum(len(e.turns) for e in EPISODES)
    assert len(separate.tokens) > len(merged.tokens)
    assert sorted(separate.tokens[separate.loss_mask].tolist()) == sorted(merged.tokens[merged.loss_mask].tolist())
    of = {t: i for t, i in zip(merged.tokens.tolist(), merged.turn_ids.tolist(), strict=True)}
    trained = separate.tokens[separate.loss_mask].tolist()
    assert separate.turn_ids[separate.loss_mask].tolist() == [of[token] for token in trained]


def test_each_answer_token_gets_the_advantage_of_its_turn():
    batch = pack(EPISODES)
    per_turn = torch.arange(9.0).reshape(3, 3) + 1
    values = spread(per_turn, batch)
    assert values[:11].tolist() == [0] * 3 + [1] * 2 + [0] * 2 + [2] * 4
    assert values[~batch.loss_mask].abs().sum() == 0


def test_micro_batches_hold_every_row_exactly_once_within_the_budget():
    batch = pack([episode((n % 7 + 1, n % 5 + 1), first_token=100 * n) for n in range(40)])
    parts = split(batch, max_tokens=30)
    index = torch.cat([part_index for part_index, _ in parts])
    assert sorted(index.tolist()) == list(range(len(batch.tokens)))
    for part_index, part in parts:
        assert len(part.tokens) <= 30
        assert torch.equal(part.tokens, batch.tokens[part_index])
        assert part.cu_seqlens[-1] == len(part.tokens)
        assert all(part.positions[start] == 0 for start in part.cu_seqlens[:-1].tolist())


def test_a_row_longer_than_the_budget_stands_alone():
    parts = split(pack([episode((50, 10)), episode((2, 2)), episode((2, 2))]), max_tokens=20)
    assert sorted(len(part.tokens) for _, part in parts) == [8, 60]
