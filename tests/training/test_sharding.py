"""A policy sharded over 1, 2 or 4 ranks learns what the whole policy learns."""

import pytest
import torch

from drkernel.policy.model import Policy, new_policy
from drkernel.policy.transfer import weights
from drkernel.training import sharding
from drkernel.training.ranks import Ranks
from drkernel.types import Batch
from tests.training import gloo

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sharding")]  # one worker starts the ranks, once

VOCABULARY, ROWS, LENGTH = 45, 8, 6  # a vocabulary that four ranks cannot share out evenly
VARIANTS = {
    "plain": {},
    "kept": {"reshard_after_forward": False},
    "activation_checkpointing": {"activation_checkpointing": 0.5},
    "compiled": {"compile": {"backend": "eager"}},
    "float32": {"dtype": torch.float32},
}


def batch(rows: list[int]) -> Batch:
    """Rows of one fixed set, packed; sampled are all tokens from the third on."""
    tokens = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))[rows]
    positions = torch.arange(LENGTH).repeat(len(rows))
    zeros = torch.zeros(len(positions))
    cu_seqlens = torch.arange(0, len(positions) + 1, LENGTH, dtype=torch.int32)
    sampled = (positions >= 2) & bool(len(rows))
    return Batch(tokens.flatten(), positions, cu_seqlens, sampled, zeros, zeros, positions, positions)


def empty() -> Batch:
    filler = batch([0])
    filler.loss_mask = torch.zeros_like(filler.loss_mask)
    return filler


def make_policy(untied: bool = False) -> Policy:
    policy = new_policy(VOCABULARY, hidden=20, layers=2, heads=3, kv_heads=1)
    policy.chunk = 3  # several chunks, so several backwards into the head
    if untied:
        generator = torch.Generator().manual_seed(7)
        policy.head.weight = torch.nn.Parameter(torch.randn(policy.head.weight.shape, generator=generator) * 0.02)
    return policy


def loss(logprobs, index):
    return -(logprobs * (1 + index % 3)).sum() / (ROWS * LENGTH)


def full(tensor):
    """On the CPU, a copy."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().cpu().clone()


def two_steps(policy: Policy, micro_batches: list[Batch], synchronise_all: bool = True) -> dict:
    """The gradients of the first step and the weights after the second."""
    optimizer, gradients = torch.optim.AdamW(policy.parameters(), lr=1e-2), {}
    for step in range(2):
        optimizer.zero_grad()
        for number, micro in enumerate(micro_batches):
            sharding.set_gradient_sync(policy, synchronise_all or number == len(micro_batches) - 1)
            policy.backward(micro, loss)
        if step == 0:
            gradients = {name: full(p.grad) for name, p in sharding.parameters(policy)}
        optimizer.step()
    weights = {name: full(p) for name, p in sharding.parameters(policy)}
    return {"gradients": gradients, "weights": weights}


def share(ranks: Ranks) -> list[Batch]:
    """Two micro-batches for each rank; the last rank has a filler where there are several."""
    mine = list(range(ROWS))[ranks.rank :: ranks.size]
    if ranks.size > 1 and ranks.rank == ranks.size - 2:
        return [batch(mine), batch(list(range(ROWS))[ranks.rank + 1 :: ranks.size])]
    if ranks.size > 1 and ranks.rank == ranks.size - 1:
        return [empty(), empty()]
    return [batch(mine[:1]), batch(mine[1:])]


def work(ranks: Ranks, folder) -> dict:
    torch.set_num_threads(1)
    found = {}
    for name, options in VARIANTS.items():
        policy = sharding.shard(make_policy(), ranks, **options)
        found[name] = two_steps(policy, share(ranks))
        found[name]["names"] = [name for name, _ in weights(policy, torch.float32)]
        found[name]["local"] = sum(p.to_local().numel() for p in policy.parameters())
    found["late"] = two_steps(sharding.shard(make_policy(), ranks), share(ranks), synchronise_all=False)
    found["untied"] = two_steps(sharding.shard(make_policy(untied=True), ranks), share(ranks))
    found["bf16"] = two_steps(sharding.shard(make_policy(), ranks, dtype=torch.bfloat16), share(ranks))
    wide = sharding.shard(make_policy(), ranks, dtype=torch.bfloat16)
    wide.fp32_head = True
    found["bf16, float32 head"] = two_steps(wide, share(ranks))
    found["odd"] = [full(p.grad) for p in odd(ranks)]
    found["stale"] = stale(ranks)
    found["silent"] = silent(ranks)
    return found


def odd(ranks: Ranks):
    """Dimensions 1, 3 and 5: some ranks have less than others, or nothing."""
    policy = make_policy()
    policy.model.extra = torch.nn.ParameterList([torch.ones(n, 2) for n in (1, 3, 5)])
    policy = sharding.shard(policy, ranks)
    hidden = policy(batch([0]))
    (hidden.sum() * 0 + sum(p.sum() * (ranks.rank + 1) for p in policy.model.extra)).backward()
    return policy.model.extra


def stale(ranks: Ranks) -> list:
    """Log-probabilities before and after an optimizer step that no backward came between, and once more."""
    policy = sharding.shard(make_policy(), ranks)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    policy.backward(batch([0]), loss)
    score = lambda: policy.logprobs(batch([0])).logprobs.cpu()
    found = [score()]
    optimizer.step()
    found.append(score())
    sharding.reshard(policy)
    return [*found, score()]


def silent(ranks: Ranks) -> bool:
    """Whether a backward whose gradients are not added up over ranks leaves none in the shards."""
    policy = sharding.shard(make_policy(), ranks)
    sharding.set_gradient_sync(policy, False)
    policy.backward(batch([0]), loss)
    return all(p.grad is None for _, p in sharding.parameters(policy))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return gloo.results("tests.training.test_sharding", tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def whole():
    """What one policy learns from all rows at once."""
    return {untied: two_steps(make_policy(untied), [batch(list(range(ROWS)))]) for untied in (False, True)}


def flat(tensors: dict) -> torch.Tensor:
    return torch.cat([tensors[name].flatten() for name in sorted(tensors)])


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("variant", [*VARIANTS, "late", "untied"])
def test_gradients_are_sums_over_ranks_and_updates_those_of_the_whole_policy(found, whole, variant, size):
    expected = whole[variant == "untied"]
    for rank in found[size]:
        torch.testing.assert_close(rank[variant]["gradients"], expected["gradients"], rtol=1e-5, atol=2e-7)
        torch.testing.assert_close(rank[variant]["weights"], expected["weights"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_bfloat16_computes_in_half_precision_and_learns_in_whole(found, whole, size):
    result = found[size][0]["bf16"]
    gradients, expected = flat(result["gradients"]), flat(whole[False]["gradients"])
    assert torch.cosine_similarity(gradients, expected, dim=0) > 0.999
    assert not torch.allclose(gradients, expected, rtol=1e-4, atol=1e-6)
    assert {weight.dtype for weight in result["weights"].values()} == {torch.float32}


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_float32_head_over_a_body_in_half_precision_has_the_gradients_of_one_rank(found, whole, size):
    mine, one = (flat(found[n][0]["bf16, float32 head"]["gradients"]) for n in (size, 1))
    assert torch.cosine_similarity(mine, one, dim=0) > 0.9999
    assert torch.cosine_similarity(mine, flat(whole[False]["gradients"]), dim=0) > 0.999
    assert not torch.equal(mine, flat(found[size][0]["bf16"]["gradients"]))


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("variant", VARIANTS)
def test_names_stay_those_of_hugging_face_and_no_rank_holds_more_than_its_share(found, variant, size):
    policy = make_policy()
    total = sum(p.numel() for p in policy.parameters())
    for rank in found[size]:
        assert rank[variant]["names"] == [name for name, _ in weights(policy, torch.float32)]
        assert rank[variant]["local"] <= 1.05 * total / size


@pytest.mark.parametrize("size", [1, 2, 4])
def test_dimensions_that_ranks_cannot_share_evenly_are_summed_too(found, size):
    for rank in found[size]:
        assert [tuple(gradient.shape) for gradient in rank["odd"]] == [(1, 2), (3, 2), (5, 2)]
        assert all((gradient == size * (size + 1) / 2).all() for gradient in rank["odd"])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_forward_without_backward_leaves_no_old_weights_behind(found, size):
    for before, after, gathered_again in (rank["stale"] for rank in found[size]):
        assert not torch.allclose(before, after)
        assert torch.equal(after, gathered_again)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_only_the_last_micro_batch_needs_to_add_gradients_up(found, size):
    assert all(rank["silent"] for rank in found[size])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("size", [1, 2, 4])
def test_gpus_learn_what_the_whole_policy_learns(tmp_path, whole, size):
    if torch.cuda.device_count() < size:
        pytest.skip(f"needs {size} GPUs")
    for rank in gloo.results("tests.training.test_sharding", tmp_path, [size], gpus=True)[size]:
        for variant in (*VARIANTS, "late", "untied"):
            gradients, expected = (flat(r["gradients"]) for r in (rank[variant], whole[variant == "untied"]))
            difference = 1 - torch.cosine_similarity(gradients, expected, dim=0)
            print(f"{size} GPUs, {variant}: 1 - cosine {difference:.1e}, norm {gradients.norm() / expected.norm():.6f}")
            assert difference < (1e-6 if variant == "float32" else 1e-3)
            assert 0.99 < gradients.norm() / expected.norm() < 1.01
        assert rank["silent"] and torch.equal(*rank["stale"][1:])
        assert all((gradient == size * (size + 1) / 2).all() for gradient in rank["odd"])
