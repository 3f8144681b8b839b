"""The gradient is that of the whole batch, however its tokens are laid out and cut."""

import math
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from threading import Barrier

import pytest
import torch

from drkernel.config import AlgoConfig
from drkernel.objective.loss import count, policy_loss, token_weights
from drkernel.policy.model import new_policy
from drkernel.training import update
from drkernel.training.packing import minibatches, pack, rows_that_train, to_tokens
from drkernel.types import Trajectory, Turn


@pytest.fixture(scope="module")
def episodes():
    draw = torch.Generator().manual_seed(0)

    def take(n):
        return torch.randint(0, 50, (n,), generator=draw).tolist()

    shapes = [((5, 4), (3, 6), (2, 3)), ((6, 2),), ((4, 5), (2, 2)), ((7, 3), (3, 9), (4, 1))]
    return [
        Trajectory("t", 0, i, [Turn(take(p), take(a), [-3.9] * a) for p, a in shape]) for i, shape in enumerate(shapes)
    ]


def gradients(episodes, layout, max_tokens, aggregation="token_mean", train=None, rows=lambda batch: batch):
    torch.manual_seed(0)
    policy = new_policy(50, hidden=64, layers=2).double()
    batch = pack(episodes, layout, train=train)
    batch.advantages = to_tokens(torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(4, 3), batch)
    batch = rows(batch)
    totals = count(batch.loss_mask, batch.turn_ids)
    weights = token_weights(aggregation, batch.loss_mask, batch.turn_ids, totals)
    loss = lambda lp, i: policy_loss(lp, lp.detach(), batch.advantages[i], weights[i])[0]
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    update.step(policy, optimizer, batch, loss, max_tokens=max_tokens, max_grad_norm=float("inf"))
    return torch.cat([p.grad.flatten() for p in policy.parameters()])


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean"])
def test_all_turns_in_one_row_give_the_gradient_of_one_row_per_turn(episodes, aggregation):
    merged, separate = (gradients(episodes, layout, 10_000, aggregation) for layout in ("trajectory", "turn"))
    torch.testing.assert_close(merged, separate, rtol=1e-5, atol=1e-8)
    assert merged.abs().max() > 0


@pytest.mark.parametrize("max_tokens", [1, 25, 40])
def test_micro_batches_add_up_to_the_whole(episodes, max_tokens):
    whole, cut = gradients(episodes, "trajectory", 10_000), gradients(episodes, "trajectory", max_tokens)
    torch.testing.assert_close(whole, cut, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean"])
def test_rows_of_which_nothing_trains_add_nothing_to_the_gradient(episodes, aggregation):
    train = torch.tensor([[True, False, True], [False] * 3, [True] * 3, [False] * 3])
    ways = (lambda batch: batch, lambda batch: rows_that_train(batch)[1])
    whole, left = (gradients(episodes, "trajectory", 30, aggregation, train, rows) for rows in ways)
    torch.testing.assert_close(whole, left, rtol=1e-5, atol=1e-8)


def test_a_step_whose_gradient_is_not_finite_changes_nothing_and_is_counted(episodes):
    policy = new_policy(50, hidden=64, layers=2)
    before = [p.clone() for p in policy.parameters()]
    optimizer = update.make_optimizer(policy, lr=1.0, weight_decay=0.1)
    metrics = update.step(
        policy, optimizer, pack(episodes), lambda lp, _: lp.sum() * float("nan"), max_tokens=100, max_grad_norm=1.0
    )
    assert metrics["skipped"] == 1
    assert all(torch.equal(p, q) for p, q in zip(policy.parameters(), before, strict=True))


def test_of_several_updates_those_with_finite_numbers_are_averaged():
    steps = [{"grad_norm": norm, "skipped": int(norm == math.inf), "tokens": 5} for norm in (1.0, math.inf, 3.0)]
    merged = update.merge_steps(steps)
    assert merged == {"grad_norm": 2.0, "skipped": 1, "tokens": 15, "updates": 3} and update.has_learnt(merged)
    alone = update.merge_steps(steps[1:2])
    assert alone["grad_norm"] == math.inf and not update.has_learnt(alone)


@pytest.mark.parametrize(("skipped", "without"), [(0, 0), (3, 0), (4, 1)])
def test_a_step_of_several_updates_counts_as_one_that_was_skipped_where_all_were(skipped, without):
    merged = update.merge_steps([{"skipped": int(number < skipped)} for number in range(4)])
    assert merged["skipped"] == skipped and (not update.has_learnt(merged)) == without


def test_several_updates_share_the_rows_between_them(episodes):
    batch = pack(episodes)
    index = torch.cat([i for i, _ in minibatches(batch, 3)])
    assert sorted(index.tolist()) == list(range(len(batch.tokens)))


POLICY = new_policy(50, hidden=64, layers=2).double()


@dataclass
class Thread:
    """A rank among others that are threads of this process."""

    rank: int
    size: int
    barrier: Barrier
    posted: dict

    def all_reduce_sum(self, tensor):
        self.posted[self.rank] = tensor.clone()
        self.barrier.wait()
        tensor.copy_(sum(self.posted[rank] for rank in range(self.size)))
        self.barrier.wait()
        return tensor


def on_ranks(size, work):
    """work(rank object) on `size` ranks at once; their results in order."""
    barrier, posted = Barrier(size, timeout=60), {}
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: work(Thread(rank, size, barrier, posted)), range(size)))


def one_step(episodes, ranks, scale=1.0):
    """The step's metrics, the gradients, and the log-probabilities before it."""
    policy, batch = deepcopy(POLICY), pack(episodes)
    before = update.logprobs(policy, batch, max_tokens=30, ranks=ranks)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    old = [p.clone() for p in policy.parameters()]
    loss = lambda lp, i: -(lp * (1 + i / len(batch.tokens))).sum() * scale
    metrics = update.step(policy, optimizer, batch, loss, max_tokens=30, max_grad_norm=0.5, ranks=ranks)
    assert metrics["skipped"] == all(torch.equal(p, q) for p, q in zip(policy.parameters(), old, strict=True))
    return metrics, torch.cat([p.grad.flatten() for p in policy.parameters()]), before


@pytest.mark.parametrize("size", [2, 3, 7])  # of 7 ranks some have fillers only
def test_any_number_of_ranks_takes_the_step_of_one(episodes, size):
    metrics, gradient, before = one_step(episodes, update.SINGLE)
    for others in on_ranks(size, lambda ranks: one_step(episodes, ranks)):
        assert others[0] == pytest.approx(metrics, rel=1e-5)
        torch.testing.assert_close(others[1], gradient, rtol=1e-5, atol=1e-8)
        torch.testing.assert_close(others[2], before, rtol=0, atol=1e-6)


def test_all_ranks_skip_a_step_whose_gradient_is_not_finite_on_one(episodes):
    def poisoned(ranks):
        return one_step(episodes, ranks, float("nan") if ranks.rank == 1 else 1.0)[0]["skipped"]

    assert on_ranks(2, poisoned) == [1, 1]


def test_entropy_is_per_sampled_token(episodes):
    batch = pack(episodes)
    entropy = POLICY.logprobs(batch).entropy[batch.loss_mask].mean().item()
    assert one_step(episodes, update.SINGLE)[0]["entropy"] == pytest.approx(entropy, rel=1e-5)


def test_gradients_are_clipped_over_all_parameters_together(episodes):
    metrics, gradient, _ = one_step(episodes, update.SINGLE)
    assert metrics["grad_norm"] > 0.5
    assert float(gradient.norm()) == pytest.approx(0.5, rel=1e-4)


OPTIONS = {"clip_low": 0.02, "clip_high": 0.03, "dual_clip": float("inf"), "aggregation": "sequence_mean_token_mean"}


def second_step(episodes, algo, ranks=update.SINGLE, max_tokens=30, chunk=5):
    """The loss and its gradient where the policy has moved since the rollout."""
    policy, batch = deepcopy(POLICY), pack(episodes)
    policy.chunk = chunk
    batch.advantages = to_tokens(torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(4, 3), batch)
    old = policy.logprobs(batch).logprobs + 0.1 * torch.sin(torch.arange(len(batch.tokens)))
    loss = update.PolicyLoss.of(algo, batch, old, policy.device)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    metrics = update.step(
        policy, optimizer, batch, loss, max_tokens=max_tokens, max_grad_norm=float("inf"), ranks=ranks
    )
    return metrics, torch.cat([p.grad.flatten() for p in policy.parameters()]), (policy, batch, old)


@pytest.mark.parametrize("level", ["turn_geometric", "geometric"])
def test_the_ratio_of_a_sequence_has_the_gradient_of_gspo_however_rows_are_cut(episodes, level):
    """Against the objective written out with all logits at once: the mean over turns of min(s A, clip(s) A)."""
    metrics, found, (policy, batch, old) = second_step(episodes, AlgoConfig(ratio_level=level, **OPTIONS))
    logits = policy.head(policy(batch)).log_softmax(-1)
    index = batch.loss_mask.nonzero().squeeze(1)
    gaps = logits[index - 1].gather(1, batch.tokens[index, None]).squeeze(1) - old[index]
    turns, sequences = batch.turn_ids[index], (batch.turn_ids if level == "turn_geometric" else batch.trajectory_ids)
    total = 0
    for turn in turns.unique():
        ratio = gaps[sequences[index] == sequences[index][turns == turn][0]].mean().exp()
        # In a trajectory of several turns a token's own derivative counts for its own turn alone.
        own = gaps[turns == turn].mean()
        ratio = ratio.detach() * (own - own.detach()).exp()
        advantage = batch.advantages[index][turns == turn][0]
        total = total - torch.minimum(ratio * advantage, ratio.clamp(1 - 0.02, 1 + 0.03) * advantage)
    loss = total / len(turns.unique())
    policy.zero_grad()
    loss.backward()
    torch.testing.assert_close(found, torch.cat([p.grad.flatten() for p in policy.parameters()]), rtol=1e-4, atol=1e-7)
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)


def test_entropy_is_rewarded_as_much_as_the_coefficient_says(episodes):
    metrics, found, (policy, batch, _) = second_step(episodes, AlgoConfig(entropy_coef=0.3))
    plain, without, _ = second_step(episodes, AlgoConfig())
    index = batch.loss_mask.nonzero().squeeze(1)
    logp = policy.head(policy(batch))[index - 1].log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1).mean()
    policy.zero_grad()
    (-0.3 * entropy).backward()
    expected = torch.cat([p.grad.flatten() for p in policy.parameters()])
    torch.testing.assert_close(found - without, expected, rtol=1e-4, atol=1e-7)
    assert metrics["entropy"] == plain["entropy"] == pytest.approx(float(entropy.detach()), rel=1e-5)
    assert metrics["loss"] == pytest.approx(plain["loss"] - 0.3 * float(entropy.detach()), rel=1e-4)


@pytest.mark.parametrize("size", [2, 7])
def test_ranks_take_the_same_step_with_ratios_of_sequences_and_a_bonus(episodes, size):
    algo = AlgoConfig(ratio_level="turn_geometric", entropy_coef=0.1, **OPTIONS)
    metrics, gradient, _ = second_step(episodes, algo)
    for others in on_ranks(size, lambda ranks: second_step(episodes, algo, ranks)):
        assert others[0] == pytest.approx(metrics, rel=1e-5)
        torch.testing.assert_close(others[1], gradient, rtol=1e-5, atol=1e-8)


def test_the_ratio_of_a_first_step_is_1_at_any_level_and_asks_for_no_second_pass(episodes):
    batch = pack(episodes)
    loss = update.PolicyLoss.of(AlgoConfig(ratio_level="turn_geometric"), batch, None, torch.device("cpu"))
    assert not loss.needs_all and loss.log_ratio is None
