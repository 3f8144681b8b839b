import math

import pytest
import torch

from drkernel.objective.loss import AGGREGATIONS, count, kl_to_reference, policy_loss, token_weights
from drkernel.objective.metric_sums import add, means
from drkernel.types import DrKernelError


def step(seed: int = 0, tokens: int = 60):
    """Log-probabilities so far apart that every clip acts; turns of unequal length with prompt tokens between."""
    generator = torch.Generator().manual_seed(seed)
    turns = torch.randint(7, (tokens,), generator=generator).sort().values
    mask = torch.rand(tokens, generator=generator) < 0.8
    old = -torch.rand(tokens, generator=generator)
    logp = old + torch.randn(tokens, generator=generator)
    advantages = torch.randn(tokens, generator=generator)
    return logp.requires_grad_(), old, advantages, mask, turns


def textbook(logp, old, advantages, weights, low=0.2, high=0.28, dual=3.0):
    """The same loss by cases, one token at a time."""
    total = 0
    for t in range(len(logp)):
        ratio, a = (logp[t] - old[t]).exp(), advantages[t]
        surrogate = min(ratio * a, torch.clamp(ratio, 1 - low, 1 + high) * a)
        if a < 0:
            surrogate = max(surrogate, dual * a)
        total = total - weights[t] * surrogate
    return total


@pytest.mark.parametrize("dual", [3.0, math.inf])
def test_loss_and_gradient_are_those_of_the_textbook_formula(dual):
    logp, old, advantages, mask, turns = step()
    weights = token_weights("token_mean", mask, turns, count(mask, turns))
    ours, metrics = policy_loss(logp, old, advantages, weights, dual_clip=dual)
    theirs = textbook(logp, old, advantages, weights, dual=dual)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, logp)[0], torch.autograd.grad(theirs, logp)[0])
    acts = {name for name, share in means(metrics).items() if share > 0}
    assert {"policy/clipped_low", "policy/clipped_high"} <= acts, "or the comparison says little"
    assert ("policy/clipped_dual" in acts) == (dual < math.inf)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gradient"),
    [
        (1.0, 2.0, -2.0),
        (1.27, 1.0, -1.27),
        (1.29, 1.0, 0.0),  # raised enough
        (0.5, 1.0, -0.5),  # too low, may rise
        (0.81, -1.0, 0.81),
        (0.79, -1.0, 0.0),  # lowered enough
        (2.9, -1.0, 2.9),  # too high, may fall
        (3.1, -1.0, 0.0),  # but a token that far off is not trusted
    ],
)
def test_where_the_gradient_stops(ratio, advantage, gradient):
    logp = torch.tensor([math.log(ratio)], requires_grad=True)
    loss, _ = policy_loss(logp, torch.zeros(1), torch.tensor([advantage]), torch.ones(1))
    assert torch.autograd.grad(loss, logp)[0].item() == pytest.approx(gradient)


def test_clips_act_only_once_the_policy_has_moved_and_the_metrics_tell():
    logp, _, advantages, mask, turns = step()
    weights = token_weights("token_mean", mask, turns, count(mask, turns))
    loss, metrics = policy_loss(logp, logp.detach(), advantages, weights)
    assert all(share == 0 for share in means(metrics).values())
    torch.testing.assert_close(torch.autograd.grad(loss, logp)[0], -advantages * weights)


def test_weights_by_hand():
    mask = torch.tensor([False, True, True, True, False, True])
    turns = torch.tensor([-1, 0, 0, 1, 1, 2])
    trajectories = torch.tensor([0, 0, 0, 0, 0, 1])

    def weights(mode, ids, **options):
        return token_weights(mode, mask, ids, count(mask, ids), **options).tolist()

    assert weights("token_mean", turns) == [0, 0.25, 0.25, 0.25, 0, 0.25]
    assert weights("sequence_mean_token_sum", turns) == pytest.approx([0, *[1 / 3000] * 3, 0, 1 / 3000])
    assert weights("sequence_mean_token_mean", turns) == pytest.approx([0, 1 / 6, 1 / 6, 1 / 3, 0, 1 / 3])
    assert weights("sequence_mean_token_mean", trajectories) == pytest.approx([0, *[1 / 6] * 3, 0, 1 / 2])
    assert weights("token_sum_over_constant", turns, divisor=8.0) == [0, 0.125, 0.125, 0.125, 0, 0.125]


def test_metrics_are_shares_of_the_tokens_that_train_and_the_kl_of_old_to_new():
    ratios = torch.tensor([0.5, 1.1, 1.5, 0.5, 1.1, 4.0, 4.0])
    advantages = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 1.0])
    weights = torch.tensor([1.0] * 6 + [0.0])
    _, tally = policy_loss(ratios.log(), torch.zeros(7), advantages, weights)
    kl = (ratios - 1 - ratios.log())[:6].mean().item()
    assert means(tally) == pytest.approx(
        {"policy/clipped_low": 1 / 6, "policy/clipped_high": 1 / 6, "policy/clipped_dual": 1 / 6, "policy/kl": kl}
    )


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_micro_batches_and_ranks_add_up_to_the_whole_step(mode):
    logp, old, advantages, mask, turns = step()
    totals = count(mask, turns)
    whole, metrics = policy_loss(logp, old, advantages, token_weights(mode, mask, turns, totals))
    cuts = [turns < 1, (turns >= 1) & (turns < 5), turns >= 5]
    assert sum(count(mask[cut], turns[cut]) for cut in cuts).equal(totals)
    parts = [
        policy_loss(logp[cut], old[cut], advantages[cut], token_weights(mode, mask[cut], turns[cut], totals))
        for cut in cuts
    ]
    summed = sum(loss for loss, _ in parts)
    torch.testing.assert_close(summed, whole)
    torch.testing.assert_close(torch.autograd.grad(summed, logp)[0], torch.autograd.grad(whole, logp)[0])
    assert means(add(*(tally for _, tally in parts))) == pytest.approx(means(metrics))


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_padding_and_rejected_turns_weigh_nothing(mode):
    """The published code fills a batch up by repeating its first rows, which then count twice."""
    logp, old, advantages, mask, turns = step()
    mask = mask & (turns != 3)

    def loss(keep):
        weights = token_weights(mode, mask[keep], turns[keep], count(mask[keep], turns[keep]))
        return policy_loss(logp[keep], old[keep], advantages[keep], weights)[0]

    torch.testing.assert_close(loss(mask | ~mask), loss(mask))


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_a_step_without_tokens_is_a_loss_of_zero_with_a_gradient_of_zero(mode):
    logp, old, advantages, mask, turns = step()
    nothing = torch.zeros_like(mask)
    loss, _ = policy_loss(logp, old, advantages, token_weights(mode, nothing, turns, count(nothing, turns)))
    assert loss.item() == 0
    assert (torch.autograd.grad(loss, logp)[0] == 0).all(), "a rank that only fills up takes part in backward"


def test_tokens_of_weight_zero_may_hold_anything():
    logp = torch.tensor([0.5, float("nan"), 0.5, 0.5], requires_grad=True)
    old = torch.tensor([0.0, 0.0, float("-inf"), 0.0])
    loss, metrics = policy_loss(
        logp, old, torch.tensor([1.0, 1.0, 1.0, float("nan")]), torch.tensor([1.0, 0.0, 0.0, 0.0])
    )
    assert math.isfinite(loss.item())
    assert all(math.isfinite(value) for value in means(metrics).values())
    assert (torch.autograd.grad(loss, logp)[0][1:] == 0).all()


def test_an_unknown_aggregation_is_refused_with_the_known_ones():
    _, _, _, mask, turns = step()
    with pytest.raises(DrKernelError, match="found 'mean', expected one of token_mean"):
        token_weights("mean", mask, turns, count(mask, turns))


def test_the_kl_to_a_reference_is_zero_at_the_reference_and_pulls_towards_it():
    logp, reference, _, mask, turns = step()
    weights = token_weights("token_mean", mask, turns, count(mask, turns))
    same, _ = kl_to_reference(reference.clone().requires_grad_(), reference, weights)
    assert same.item() == 0
    penalty, metrics = kl_to_reference(logp, reference, weights)
    penalty.backward()
    assert penalty > 0 and means(metrics)["policy/kl_to_reference"] == pytest.approx(penalty.item(), rel=1e-5)
    assert torch.equal(logp.grad[mask].sign(), (logp - reference)[mask].sign()), "a step down the gradient comes closer"
    assert not logp.grad[~mask].any()


def test_the_mean_of_the_kl_over_what_the_policy_samples_is_the_kl():
    p, q = torch.tensor([0.5, 0.3, 0.2]).log(), torch.tensor([0.2, 0.3, 0.5]).log()
    estimate, _ = kl_to_reference(p, q, p.exp())
    assert estimate.item() == pytest.approx((p.exp() * (p - q)).sum().item(), rel=1e-5)


def test_the_kl_of_parts_adds_up_to_that_of_the_whole():
    logp, reference, _, mask, turns = step()
    weights = token_weights("token_mean", mask, turns, count(mask, turns))
    whole, sums = kl_to_reference(logp, reference, weights)
    parts = [kl_to_reference(logp[part], reference[part], weights[part]) for part in (slice(0, 17), slice(17, None))]
    torch.testing.assert_close(sum(part for part, _ in parts), whole)
    assert means(add(*(each for _, each in parts))) == pytest.approx(means(sums))
