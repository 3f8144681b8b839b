"""Packing is a change of layout only: nothing is lost, nothing is trained twice, nothing leaks between rows."""

import pytest
import torch

from drkernel.training.packing import cost, microbatches, pack, rows_that_train, shard_microbatches, to_tokens
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
    of = dict(zip(merged.tokens.tolist(), merged.turn_ids.tolist(), strict=True))
    trained = separate.tokens[separate.loss_mask].tolist()
    assert separate.turn_ids[separate.loss_mask].tolist() == [of[token] for token in trained]


def test_each_answer_token_gets_the_advantage_of_its_turn():
    batch = pack(EPISODES)
    per_turn = torch.arange(9.0).reshape(3, 3) + 1
    values = to_tokens(per_turn, batch)
    assert values[:11].tolist() == [0] * 3 + [1] * 2 + [0] * 2 + [2] * 4
    assert values[~batch.loss_mask].abs().sum() == 0


def test_micro_batches_hold_every_row_exactly_once_within_the_budget():
    batch = pack([episode((n % 7 + 1, n % 5 + 1), first_token=100 * n) for n in range(40)])
    parts = microbatches(batch, max_tokens=30)
    index = torch.cat([part_index for part_index, _ in parts])
    assert sorted(index.tolist()) == list(range(len(batch.tokens)))
    for part_index, part in parts:
        assert len(part.tokens) <= 30
        assert torch.equal(part.tokens, batch.tokens[part_index])
        assert part.cu_seqlens[-1] == len(part.tokens)
        assert all(part.positions[start] == 0 for start in part.cu_seqlens[:-1].tolist())


def test_rows_that_fill_the_budget_share_a_micro_batch():
    parts = microbatches(pack([episode((6, 4)) for _ in range(4)]), max_tokens=20)
    assert [len(part.tokens) for _, part in parts] == [20, 20]


def test_a_row_longer_than_the_budget_stands_alone():
    parts = microbatches(pack([episode((50, 10)), episode((2, 2)), episode((2, 2))]), max_tokens=20)
    assert sorted(len(part.tokens) for _, part in parts) == [8, 60]


def log_normal(rows, seed, longest=300):
    lengths = 60 * torch.randn(rows, generator=torch.Generator().manual_seed(seed)).mul(0.6).exp()
    return pack([episode((5, min(int(n), longest) + 1)) for n in lengths])


def trained(dealt):
    """Positions of all rows but fillers."""
    return [index for share in dealt for index, part in share if part.loss_mask.any()]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("rows", [1, 5, 23])
def test_ranks_get_every_row_once_and_equally_many_micro_batches_within_the_budget(size, rows):
    batch = log_normal(rows, seed=rows)
    dealt = shard_microbatches(batch, 200, size)
    assert sorted(torch.cat(trained(dealt)).tolist()) == list(range(len(batch.tokens)))
    assert len(dealt) == size and len({len(share) for share in dealt}) == 1 and dealt[0]
    for index, part in (micro for share in dealt for micro in share):
        assert len(part.tokens) <= 200 or len(part.cu_seqlens) == 2
        assert torch.equal(part.tokens, batch.tokens[index])


def test_a_filler_is_the_shortest_row_with_nothing_to_train_on():
    dealt = shard_microbatches(pack([episode((3, 9)), episode((2, 2))]), 100, 4)
    fillers = [part for share in dealt for _, part in share if not part.loss_mask.any()]
    assert [len(part.tokens) for part in fillers] == [4, 4]


@pytest.mark.parametrize("seed", range(20))
def test_micro_batches_of_the_same_turn_cost_about_the_same_on_all_ranks(seed):
    """Ranks wait for the slowest at every micro-batch; rows of a tenth of the budget leave them little to wait for."""
    dealt = shard_microbatches(log_normal(256, seed), 1000, 4)
    turns = [
        [sum(cost(n) for n in part.cu_seqlens.diff().tolist()) for _, part in turn] for turn in zip(*dealt, strict=True)
    ]
    slowest, mean = (sum(pick(turn) for turn in turns) for pick in (max, lambda turn: sum(turn) / 4))
    assert slowest / mean < 1.02


def test_dealing_is_a_function_of_the_batch_and_keeps_the_number_of_micro_batches_small():
    batch = log_normal(64, seed=0)
    one, two = shard_microbatches(batch, 500, 2), shard_microbatches(batch, 500, 2)
    for (index, _), (again, _) in zip(one[0] + one[1], two[0] + two[1], strict=True):
        assert torch.equal(index, again)
    assert len(one[0]) <= len(microbatches(batch, 500)) / 2 + 2


def test_rows_that_filters_reject_as_a_whole_leave_the_batch():
    train = torch.tensor([[False, True, False], [False] * 3, [True, False, False]])
    batch = pack(EPISODES, train=train)
    index, left = rows_that_train(batch)
    assert left.trajectory_ids.tolist() == [0] * 11 + [2] * 10 and left.cu_seqlens.tolist() == [0, 11, 21]
    assert left.tokens[left.loss_mask].tolist() == batch.tokens[batch.loss_mask].tolist()
    assert left.tokens.tolist() == batch.tokens[index].tolist()
    assert rows_that_train(pack(EPISODES))[1].tokens.tolist() == pack(EPISODES).tokens.tolist()


def test_where_nothing_trains_the_shortest_row_stays():
    _, left = rows_that_train(pack(EPISODES, train=torch.zeros(3, 3, dtype=torch.bool)))
    assert left.trajectory_ids.tolist() == [1] * 5 and not left.loss_mask.any()
