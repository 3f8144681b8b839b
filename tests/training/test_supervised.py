"""What supervised stages share: rows, epochs, the learning rate, and steps that any number of ranks takes alike."""

from itertools import accumulate, islice, pairwise

import pytest
import torch
import torch.distributed as dist

from drkernel.config import sft
from drkernel.policy.model import new_policy
from drkernel.training import checkpoint, sharding, supervised, update
from drkernel.training.optimizers import OPTIMIZERS, MuonWithAdamW, StackedMuon
from drkernel.training.packing import pack
from drkernel.training.ranks import Ranks
from drkernel.training.supervised import Epochs, row, row_of
from drkernel.types import Trajectory, Turn
from tests.training import gloo

TRAJECTORIES = [
    Trajectory("t", 0, i, [Turn([1, 2, 3 + i], [4, 5], [0.0] * 2), Turn([6], [7, 8 + i, 9], [0.0] * 3)])
    for i in range(6)
]
ROWS = [row_of(trajectory) for trajectory in TRAJECTORIES]
LENGTHS = [7, 1, 4, 4, 2, 9, 3]
FIELDS = ("tokens", "positions", "cu_seqlens", "loss_mask", "advantages", "rollout_logprobs", "trajectory_ids")


def test_rows_are_packed_as_trajectories_are():
    ours, theirs = supervised.pack_rows(ROWS), pack(TRAJECTORIES)
    for name in FIELDS:
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    assert torch.equal(ours.turn_ids >= 0, theirs.turn_ids >= 0)


def test_a_row_keeps_which_tokens_train():
    made = row([([1, 2], False), ([3], True), ([4], False), ([5, 6], True)])
    assert made.tokens.tolist() == [1, 2, 3, 4, 5, 6] and len(made) == 6
    assert made.trains.tolist() == [False, False, True, False, True, True]


def test_each_epoch_takes_every_row_once_in_another_order():
    epochs = Epochs(LENGTHS, seed=3, epochs=2, batch_size=1)
    assert epochs.steps == 14
    order = [chosen[0] for chosen in islice(epochs.batches(), 14)]
    assert sorted(order[:7]) == sorted(order[7:]) == list(range(7)) and order[:7] != order[7:]


@pytest.mark.parametrize("size", [{"batch_size": 3}, {"batch_tokens": 10}, {"batch_size": 64, "batch_tokens": 10}])
def test_steps_fill_a_number_of_rows_or_of_tokens(size):
    epochs = Epochs(LENGTHS, seed=0, epochs=4, **size)
    batches = list(islice(epochs.batches(), epochs.steps))
    if "batch_tokens" in size:
        assert epochs.steps == 12 and all(sum(LENGTHS[i] for i in chosen) >= 10 for chosen in batches)
    else:
        assert epochs.steps == 9 and all(len(chosen) == 3 for chosen in batches)


def test_the_batches_after_some_steps_are_those_of_an_uninterrupted_run():
    epochs = Epochs(LENGTHS, seed=1, epochs=9, batch_tokens=10)
    whole = list(islice(epochs.batches(), 20))
    assert list(islice(epochs.batches(after=13), 7)) == whole[13:]


MIXED = [(3, 1.0), (8, 0.25), (2, 2.0), (5, 1.5)]
"""(rows, weight) of four sources."""


def of_sources(chosen: list[int]) -> list[list[int]]:
    """The rows of each source among those chosen, from 0."""
    ends = list(accumulate((count for count, _ in MIXED), initial=0))
    return [sorted(i - first for i in chosen if first <= i < last) for first, last in pairwise(ends)]


def test_an_epoch_takes_of_each_source_its_weight():
    epochs = Epochs([1] * 18, seed=3, epochs=4, batch_size=1, sources=MIXED)
    order = [chosen[0] for chosen in islice(epochs.batches(), epochs.steps)]
    assert epochs.steps == 66, "3 + 2 + 4 + 7.5, four times"
    sizes = [0, *accumulate(3 + 2 + 4 + odd for odd in (7, 8, 7, 8))]
    found = [of_sources(order[first:last]) for first, last in pairwise(sizes)]
    for whole, quarter, twice, half_more in found:
        assert whole == [0, 1, 2] and twice == [0, 0, 1, 1]
        assert len(set(quarter)) == 2 and set(half_more) == set(range(5)) and len(half_more) in (7, 8)
    assert sorted(row for _, quarter, _, _ in found for row in quarter) == list(range(8)), "another quarter each time"
    assert len({tuple(quarter) for _, quarter, _, _ in found}) == 4
    assert sorted(row for *_, parts in found for row in parts) == sorted([*range(5)] * 6)


def test_what_an_epoch_takes_is_drawn_by_the_seed_and_goes_on_after_a_stop():
    options = {"epochs": 4, "batch_size": 4, "sources": MIXED}
    first, same, other = (Epochs([1] * 18, seed=seed, **options) for seed in (0, 0, 1))
    whole = list(islice(first.batches(), 12))
    assert whole == list(islice(same.batches(), 12)) != list(islice(other.batches(), 12))
    assert list(islice(first.batches(after=7), 5)) == whole[7:]


@pytest.mark.parametrize("size", [{"batch_size": 3}, {"batch_tokens": 10}])
def test_one_whole_source_is_what_no_sources_are(size):
    plain = Epochs(LENGTHS, seed=2, epochs=4, **size)
    named = Epochs(LENGTHS, seed=2, epochs=4, **size, sources=[(7, 1.0)])
    both = Epochs(LENGTHS, seed=2, epochs=4, **size, sources=[(3, 1.0), (4, 1.0)])
    expected = list(islice(plain.batches(), 20))
    for epochs in (named, both):
        assert epochs.steps == plain.steps and list(islice(epochs.batches(), 20)) == expected


def test_the_steps_of_weighted_sources_go_by_the_tokens_that_they_bring():
    epochs = Epochs([10, 10, 1, 1, 1, 1], seed=0, epochs=2, batch_tokens=6, sources=[(2, 0.5), (4, 2.0)])
    assert epochs.steps == 6, "10 + 8 tokens, twice"


def test_few_rows_make_at_least_one_step():
    assert Epochs([5], seed=0, epochs=1, batch_size=64).steps == 1
    assert next(Epochs([5], seed=0, epochs=1, batch_size=3).batches()) == [0, 0, 0], "an epoch goes on in the next"


def test_the_learning_rate_rises_and_then_falls_as_a_cosine():
    rates = [supervised.schedule(step, 10, warmup=0.2, end=0.0) for step in range(10)]
    assert rates[:2] == [0.5, 1.0] and rates[-1] == 0 and rates == rates[:2] + sorted(rates[2:], reverse=True)
    assert rates[5] == pytest.approx(0.5)
    assert supervised.schedule(0, 1) == 1.0


def trained(policy, optimizer: str, ranks: Ranks, steps: int = 4) -> list[float]:
    made = OPTIMIZERS[optimizer](policy, 1e-2, 0.1)
    options = {"max_tokens": 20, "max_grad_norm": 1.0, "ranks": ranks}
    return [supervised.step(policy, made, ROWS, 1e-2, **options)["loss"] for _ in range(steps)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_loss_is_the_mean_over_the_tokens_that_train_and_falls(optimizer):
    torch.manual_seed(0)
    policy = new_policy(20, hidden=64, layers=1)
    before = supervised.loss(policy, ROWS, max_tokens=20)
    losses = trained(policy, optimizer, Ranks(), 8)
    assert losses[0] == pytest.approx(before, rel=1e-5)
    assert supervised.loss(policy, ROWS, max_tokens=1000) < 0.7 * before


def test_each_optimizer_is_a_word_that_the_config_takes():
    assert tuple(OPTIMIZERS) == sft.OPTIMIZERS


def test_muon_takes_the_matrices_of_blocks_and_adamw_all_else():
    policy = new_policy(20, hidden=64, layers=1)
    optimizer = OPTIMIZERS["muon"](policy, 1e-3, 0.1)
    assert isinstance(optimizer, MuonWithAdamW)
    matrices, tables, vectors = (group["params"] for group in optimizer.param_groups)
    names = {id(p): name for name, p in policy.named_parameters()}
    assert {names[id(p)].split(".")[-2] for p in matrices} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    }
    assert [names[id(p)] for p in tables] == ["model.model.embed_tokens.weight"], "tied to the head"
    assert all(p.ndim == 1 for p in vectors)
    assert len(matrices) + len(tables) + len(vectors) == len(update.trained(policy))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.1, 0.0]


def test_matrices_of_a_shape_take_the_steps_of_torchs_muon_together():
    options = {"lr": 1e-2, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}
    kinds, shapes = (torch.optim.Muon, StackedMuon), [(24, 8), (8, 24), (24, 8), (8, 8), (8, 24)]
    found = []
    for kind in kinds:
        torch.manual_seed(0)
        matrices = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        optimizer = kind(matrices, **options)
        for step in range(3):
            for number, matrix in enumerate(matrices):  # the last has no gradient in the first step
                matrix.grad = torch.randn(matrix.shape) if step or number < 4 else None
            optimizer.step()
        found.append([*matrices, *(optimizer.state[matrix]["momentum_buffer"] for matrix in matrices)])
    for ours, torchs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, torchs, rtol=2e-2, atol=1e-4)  # products in bfloat16


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_checkpoint_brings_either_optimizer_back_bit_for_bit(optimizer, tmp_path):
    def fresh():
        torch.manual_seed(0)
        policy = new_policy(20, hidden=64, layers=1)
        return policy, OPTIMIZERS[optimizer](policy, 1e-2, 0.1)

    take = lambda pair, steps: [
        supervised.step(*pair, ROWS, 1e-2, max_tokens=20, max_grad_norm=1.0)["loss"] for _ in range(steps)
    ]
    whole = take(fresh(), 4)
    first = fresh()
    take(first, 2)
    checkpoint.save(tmp_path, 2, *first, {}, 1, Ranks())
    other = fresh()
    checkpoint.load_latest(tmp_path, *other, Ranks())
    assert take(other, 2) == whole[2:]


def work(ranks: Ranks, folder) -> dict:
    """The losses of a policy that is sharded, and of one that every rank has whole; and what a checkpoint of the latter
    brings back."""
    torch.set_num_threads(1)
    found = {}
    for optimizer in OPTIMIZERS:
        for kind, placed in (("sharded", sharding.shard), ("whole", lambda policy, _: policy)):
            torch.manual_seed(0)
            policy, name = placed(new_policy(20, hidden=64, layers=2), ranks), f"{kind} {optimizer}"
            found[name] = trained(policy, optimizer, ranks)
            found[f"{name} after"] = supervised.loss(policy, ROWS, 20, ranks)
        saved = folder / f"{ranks.size} {optimizer}"
        checkpoint.save(saved, 1, policy, OPTIMIZERS[optimizer](policy, 1e-3, 0.1), {}, 1, ranks)
        restored = new_policy(20, hidden=64, layers=2, seed=1)
        checkpoint.load_latest(saved, restored, OPTIMIZERS[optimizer](restored, 1e-3, 0.1), ranks)
        found[f"{name} restored"] = supervised.loss(restored, ROWS, 20, ranks)
    return found


@pytest.mark.slow
@pytest.mark.xdist_group("supervised")
def test_two_ranks_take_the_steps_of_one_whether_the_policy_is_sharded_or_whole(tmp_path):
    found = gloo.results(__name__, tmp_path, sizes=(1, 2))
    (one,), (first, second) = found[1], found[2]
    assert first == second
    for name, values in one.items():
        assert first[name] == pytest.approx(values, rel=1e-2 if "muon" in name else 1e-5), name
    for optimizer in OPTIMIZERS:
        assert first[f"whole {optimizer} restored"] == first[f"whole {optimizer} after"]
    assert not dist.is_initialized()


def test_a_step_of_a_large_set_does_not_count_all_rows_again():
    class Lengths(list):
        seen = 0

        def __getitem__(self, place):
            self.seen += isinstance(place, slice)
            return super().__getitem__(place)

    lengths = Lengths([10] * 100)
    epochs = Epochs(lengths, seed=0, epochs=1, batch_tokens=100)
    assert [epochs.steps, epochs.steps] == [10, 10] and lengths.seen == 1
