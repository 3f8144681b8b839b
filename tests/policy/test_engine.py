"""A completion is a function of the weights and its own request, to the bit; and it is what the trainer would score."""

import os

import pytest
import torch

from drkernel.objective.mismatch import importance_weights
from drkernel.policy import Request, Sampling, engines, new_policy
from drkernel.policy.engines import transformers_engine as module
from drkernel.policy.engines import vllm_engine
from drkernel.policy.engines.transformers_engine import TransformersEngine
from drkernel.types import DrKernelError
from tests.policy.engine_cases import (
    TRUNCATED,
    VOCABULARY,
    distribution,
    expect_a_sync_to_take_all_weights,
    expect_the_policys_distribution,
    expect_truncated_distributions,
    run,
    score,
    tokens,
    truncated_distribution,
)

STOP = 1


@pytest.fixture(scope="module")
def policy():
    made = new_policy(VOCABULARY, hidden=64, layers=2, seed=2)
    with torch.no_grad():
        for p in made.parameters():
            p.mul_(4 if p.ndim > 1 else 1)  # far from uniform, so that logits matter
    return made


def engine(policy, slots=16, context=512) -> TransformersEngine:
    return TransformersEngine(policy, {STOP}, slots, context)


def requests(count: int) -> list[Request]:
    """Groups of three share a prompt; lengths are ragged and cross several attention buckets."""
    return [Request(f"r{i}", tokens(i // 3, 3 + 41 * (i // 3) % 130), 30 + 17 * i % 110, seed=i) for i in range(count)]


@pytest.mark.slow
def test_a_request_has_the_same_bits_alone_in_a_batch_in_any_order_and_delayed(policy):
    batch = requests(24)
    together = run(engine(policy), batch)
    assert run(engine(policy), batch[::-1]) == together
    assert run(engine(policy), batch, delay=7) == together
    shuffled = [batch[i] for i in torch.randperm(24, generator=torch.Generator().manual_seed(0))]
    assert run(engine(policy), shuffled, delay=3) == together
    for request in batch[::5]:
        assert run(engine(policy), [request]) == {request.id: together[request.id]}


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(192, 3), (256, 2)])
def test_bits_hold_for_shapes_that_are_shipped_with_both_thread_counts(shape):
    made = new_policy(1500, *shape, seed=3)
    batch = [Request(f"r{i}", [5 + t for t in tokens(i // 2, 9 + 23 * (i // 2))], 12, seed=i) for i in range(20)]
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            together = run(engine(made, slots=32), batch)
            assert run(engine(made, slots=32), batch[::-1], delay=2) == together
            assert run(engine(made, slots=32), batch[7:8])["r7"] == together["r7"]
    finally:
        torch.set_num_threads(threads)


def later(first: Request, completion, turn: int) -> Request:
    prompt = first.prompt_ids + completion.token_ids + tokens(900 + turn, 11)
    return Request(f"{first.id}.{turn}", prompt, 25, first.seed + turn, parent=first.id)


def dialogue(made: TransformersEngine, batch: list[Request], wait: dict[str, int]) -> dict:
    """Three turns each; turn k + 1 of a request is added `wait[id]` steps after turn k completed."""
    done, parked, step = {}, [], 0
    live = {r.id: (r, 0) for r in batch}
    for request in batch:
        made.add(request)
    while made.busy or parked:
        for due, request, turn in [p for p in parked if p[0] <= step]:
            live[request.id] = (request, turn)
            made.add(request)
            parked.remove((due, request, turn))
        for completion in made.step():
            request, turn = live.pop(completion.id)
            done[completion.id] = completion
            if turn < 2:
                root = completion.id.split(".")[0]
                parked.append((step + wait.get(root, 0), later(request, completion, turn + 1), turn + 1))
        step += 1
    return done


@pytest.mark.slow
def test_later_turns_have_the_same_bits_whenever_their_feedback_arrives(policy):
    batch = requests(20)
    at_once = dialogue(engine(policy), batch, {})
    assert len(at_once) == 60
    late = dialogue(engine(policy), batch[::-1], {f"r{i}": (i * 37) % 90 for i in range(20)})
    assert late == at_once
    alone = dialogue(engine(policy), batch[4:5], {})
    assert alone == {key: value for key, value in at_once.items() if key.split(".")[0] == "r4"}


@pytest.mark.slow
def test_bits_hold_where_matrix_products_depend_on_the_number_of_rows(policy, monkeypatch):
    """The fallback for machines whose kernels do: one number of rows for decoding, prompts read alone."""
    monkeypatch.setattr(module, "_row_step", lambda model, slots: None)
    batch = requests(12)
    together = run(engine(policy), batch)
    assert run(engine(policy), batch[::-1], delay=5) == together
    assert run(engine(policy), batch[3:4])["r3"] == together["r3"]


def test_a_longer_limit_only_goes_on_where_the_shorter_one_stopped(policy):
    short, long = Request("a", tokens(1, 20), 20, 3), Request("a", tokens(1, 20), 60, 3)
    one, two = run(engine(policy), [short])["a"], run(engine(policy), [long])["a"]
    assert two.token_ids[: len(one.token_ids)] == one.token_ids


def test_seeds_differ_and_prompts_matter(policy):
    base = Request("a", tokens(1, 20), 30, 3)
    results = run(engine(policy), [base, Request("b", base.prompt_ids, 30, 4), Request("c", tokens(2, 20), 30, 3)])
    assert len({tuple(c.token_ids) for c in results.values()}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_are_the_trainers_over_all_turns(policy, temperature):
    made = engine(policy)
    first = Request("a", tokens(5, 70), 80, 11, sampling=Sampling(temperature))
    completion = run(made, [first])["a"]
    prompt = first.prompt_ids
    for turn in range(3):
        torch.testing.assert_close(
            torch.tensor(completion.logprobs), score(policy, prompt, completion, temperature), rtol=0, atol=2e-4
        )
        prompt = prompt + completion.token_ids + tokens(turn, 9)
        id = f"a{turn}"
        parent = f"a{turn - 1}" if turn else "a"
        completion = run(made, [Request(id, prompt, 50, turn, parent=parent, sampling=Sampling(temperature))])[id]


@pytest.mark.slow
def test_tokens_are_drawn_from_the_policys_distribution(policy):
    expect_the_policys_distribution(engine(policy, slots=64))


def test_greedy_takes_the_best_and_what_is_drawn_from_one_token_is_certain(policy):
    prompt = tokens(8, 12)
    settings = {"greedy": Sampling(0.0), "top_k": Sampling(top_k=1), "top_p": Sampling(top_p=1e-6)}
    settings |= {"min_p": Sampling(min_p=0.999)}
    done = run(engine(policy), [Request(name, prompt, 20, 1, sampling=s) for name, s in settings.items()])
    assert all(completion.token_ids == done["greedy"].token_ids for completion in done.values())
    torch.testing.assert_close(
        torch.tensor(done["greedy"].logprobs), score(policy, prompt, done["greedy"]), rtol=0, atol=2e-4
    )
    assert all(max(map(abs, done[name].logprobs)) < 1e-6 for name in ("top_k", "top_p", "min_p"))


@pytest.mark.slow
def test_truncated_tokens_are_drawn_from_what_is_left(policy):
    expect_truncated_distributions(engine(policy, slots=64), policy, 2e-4)


def test_the_importance_weight_of_a_truncated_token_is_the_mass_that_was_left(policy):
    prompt = tokens(8, 12)
    for sampling in TRUNCATED:
        whole = distribution(policy, prompt, sampling.temperature)
        left = whole[truncated_distribution(whole, sampling) > 0].sum()
        batch = [Request(str(i), prompt, 1, i, sampling=sampling) for i in range(16)]
        done = [*run(engine(policy), batch).values()]
        trainer = torch.cat([score(policy, prompt, each, sampling.temperature) for each in done])
        rollout, ids = torch.tensor([each.logprobs[0] for each in done]), torch.arange(16)
        weights = importance_weights(trainer, rollout, ids, ids, torch.ones(16, dtype=torch.bool))
        torch.testing.assert_close(weights, left.expand(16), rtol=1e-3, atol=0)
        assert 0 < left < 0.99


def test_stop_token_ends_an_answer_and_is_part_of_it(policy):
    done = run(engine(policy), [Request(str(i), tokens(i, 10), 200, i) for i in range(40)])
    finished = [c for c in done.values() if c.finished]
    assert finished and all(c.token_ids[-1] == STOP and STOP not in c.token_ids[:-1] for c in finished)
    assert all(STOP not in c.token_ids and len(c.token_ids) == 200 for c in done.values() if not c.finished)
    assert all(len(c.token_ids) == len(c.logprobs) for c in done.values())


def test_context_ends_an_answer(policy):
    completion = run(TransformersEngine(policy, set(), 4, 64), [Request("a", tokens(0, 60), 50, 0)])["a"]
    assert len(completion.token_ids) == 4 and not completion.finished


def test_sync_takes_over_the_weights_and_forgets_what_was_read(policy):
    other = new_policy(VOCABULARY, hidden=64, layers=2, seed=9)
    expect_a_sync_to_take_all_weights(engine(policy), engine(other), other)


def test_bad_requests_are_refused_with_their_name(policy):
    made = engine(policy)
    with pytest.raises(DrKernelError, match="request long: found 600 prompt tokens"):
        made.add(Request("long", tokens(0, 600), 5, 0))
    with pytest.raises(DrKernelError, match="request b: parent 'a'"):
        made.add(Request("b", tokens(0, 6), 5, 0, parent="a"))
    run(made, [Request("a", tokens(0, 6), 5, 0)])
    with pytest.raises(DrKernelError, match="does not extend"):
        made.add(Request("b", tokens(1, 30), 5, 0, parent="a"))


def test_released_and_extended_requests_hold_no_memory(policy):
    made = engine(policy)
    first = Request("a", tokens(0, 6), 5, 0)
    done = run(made, [first, Request("z", tokens(0, 6), 5, 0)])
    made.release("z")
    second = later(first, done["a"], 1)
    run(made, [second])
    made.release(second.id)
    assert not made._kept


def test_an_engine_that_cannot_be_made_leaves_the_environment_as_it_was(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ValueError, match="no engine"), vllm_engine._environment({"RANK": "0", "NOT_SET": "1"}):
        raise ValueError("no engine")
    assert os.environ["RANK"] == "3" and "NOT_SET" not in os.environ


def test_an_engine_that_is_not_installed_is_named_with_what_to_choose_instead(monkeypatch):
    monkeypatch.setattr(engines.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DrKernelError, match=r"config: engine\.name=vllm; expected vLLM to be installed .*engine=auto"):
        engines.load_engine("vllm", None, set())
