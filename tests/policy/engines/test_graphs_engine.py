"""The graphs engine keeps the protocol: on a CPU its steps in plain torch, on a GPU its graphs. Its kernels are
tested in test_decode_kernels.py."""

import time

import pytest
import torch

from drkernel.policy import Request, Sampling, load_engine, new_policy
from drkernel.policy.engines import graphs_engine as module
from drkernel.policy.engines.graphs_engine import GraphsEngine, unsupported
from drkernel.policy.engines.transformers_engine import TransformersEngine
from drkernel.types import DrKernelError
from tests.policy.engine_cases import (
    TRUNCATED,
    VOCABULARY,
    expect_a_sync_to_take_all_weights,
    expect_the_policys_distribution,
    expect_truncated_distributions,
    run,
    score,
    tokens,
)

STOP = 1
GPU = torch.cuda.is_available()
TOLERANCE = 0.1 if GPU else 2e-4


@pytest.fixture(scope="module")
def policy():
    return sharp(new_policy(VOCABULARY, hidden=64, layers=2, seed=2)).to("cuda" if GPU else "cpu")


def sharp(made):
    """Far from uniform, so that logits matter."""
    with torch.no_grad():
        for p in made.parameters():
            p.mul_((2 if GPU else 4) if p.ndim > 1 else 1)
    return made


def engine(policy, slots=16, context=512) -> GraphsEngine:
    return GraphsEngine(policy, {STOP}, slots, context)


def requests(count: int) -> list[Request]:
    """Groups of three share a prompt; lengths are ragged, and one prompt in the first group has a single token."""
    lengths = [1 if i // 3 == 0 else 3 + 41 * (i // 3) % 130 for i in range(count)]
    return [Request(f"r{i}", tokens(i // 3, n), 30 + 17 * i % 110, seed=i) for i, n in enumerate(lengths)]


def close(policy, request: Request, completion) -> None:
    """Log-probabilities are the trainer's; in bfloat16 on average."""
    expected = score(policy, request.prompt_ids, completion, request.sampling.temperature or 1.0)
    difference = (torch.tensor(completion.logprobs) - expected).abs()
    assert (difference.mean() if GPU else difference.max()) < TOLERANCE


def same(one: dict, two: dict) -> None:
    """Rows of other numbers may round differently: tokens are equal on a CPU, log-probabilities nearly."""
    assert one.keys() == two.keys()
    for name, completion in one.items():
        assert completion.token_ids == two[name].token_ids and completion.finished == two[name].finished
        torch.testing.assert_close(
            torch.tensor(completion.logprobs), torch.tensor(two[name].logprobs), rtol=0, atol=1e-4
        )


@pytest.mark.slow
def test_log_probabilities_are_the_trainers_with_more_requests_than_slots(policy):
    batch = requests(40)
    done = run(engine(policy), batch)
    assert len(done) == 40
    for request in batch:
        close(policy, request, done[request.id])
        completion = done[request.id]
        assert len(completion.token_ids) == request.max_tokens or completion.token_ids[-1] == STOP


@pytest.mark.slow
@pytest.mark.skipif(GPU, reason="in bfloat16 rounding decides tokens")
def test_a_completion_depends_on_its_own_request(policy):
    batch = requests(24)
    together = run(engine(policy), batch)
    same(run(engine(policy), batch[::-1]), together)
    same(run(engine(policy, slots=5), batch, delay=1), together)
    same(run(engine(policy), batch[4:5]), {"r4": together["r4"]})
    same(run(load_engine("transformers", policy, {STOP}, 16, 512), batch), together)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_later_turns_extend_earlier_ones(policy, temperature):
    made = engine(policy)
    request = Request("a", tokens(5, 70), 60, 11, sampling=Sampling(temperature))
    for turn in range(3):
        completion = run(made, [request])[request.id]
        close(policy, request, completion)
        prompt = request.prompt_ids + completion.token_ids + tokens(turn, 9)
        request = Request(f"a{turn}", prompt, 50, turn, parent=request.id, sampling=Sampling(temperature))


def test_stop_token_and_limits(policy):
    done = run(engine(policy), [Request(str(i), tokens(i, 10), 100, i) for i in range(40)])
    finished = [c for c in done.values() if c.finished]
    assert finished and all(c.token_ids[-1] == STOP and STOP not in c.token_ids[:-1] for c in finished)
    assert all(STOP not in c.token_ids and len(c.token_ids) == 100 for c in done.values() if not c.finished)
    assert all(len(c.token_ids) == len(c.logprobs) for c in done.values())


def test_a_step_goes_no_further_than_the_longest_limit(policy, monkeypatch):
    made = GraphsEngine(policy, set(), 4, 64)
    launched = []
    decode = GraphsEngine._decode
    monkeypatch.setattr(GraphsEngine, "_decode", lambda self, *a: launched.append(1) or decode(self, *a))
    made._graphs.clear()
    done = run(made, [Request("a", tokens(0, 60), 50, 0), Request("b", tokens(0, 5), 3, 0)])
    assert len(launched) == 4
    assert len(done["a"].token_ids) == 4 and not done["a"].finished, "the context ends it"
    assert len(done["b"].token_ids) == 3


def test_the_last_sequences_decode_in_a_small_graph(policy, monkeypatch):
    sizes = []
    decode = GraphsEngine._decode
    monkeypatch.setattr(GraphsEngine, "_decode", lambda self, size, cut: sizes.append(size) or decode(self, size, cut))
    made = GraphsEngine(policy, set(), 16, 512)
    made._graphs.clear()
    batch = [Request(str(i), tokens(i, 10), 16 + 40 * (i == 11), i) for i in range(12)]
    done = run(made, batch)
    assert sizes[-56:] == [16] * 16 + [2] * 40
    close(policy, batch[11], done["11"])


def test_prompts_are_read_once_and_in_several_forwards(policy, monkeypatch):
    monkeypatch.setattr(module, "PROMPT_TOKENS", 100)
    read = []
    forward = GraphsEngine._forward_prompts
    monkeypatch.setattr(
        GraphsEngine,
        "_forward_prompts",
        lambda self, group: read.append([len(s[0].prompt) - 1 for s in group]) or forward(self, group),
    )
    batch = [Request(str(i), tokens(i // 4, (30, 60, 200, 50)[i // 4]), 10, i) for i in range(16)]
    done = run(engine(policy), batch)
    assert read == [[29, 59], [199], [49]]
    for request in batch:
        close(policy, request, done[request.id])


def test_greedy_takes_the_best_and_what_is_drawn_from_one_token_is_certain(policy):
    prompt = tokens(8, 12)
    settings = {"greedy": Sampling(0.0), "top_k": Sampling(top_k=1), "top_p": Sampling(top_p=1e-6)}
    settings |= {"min_p": Sampling(min_p=0.999)}
    batch = [Request(name, prompt, 20, 1, sampling=s) for name, s in settings.items()]
    done = run(engine(policy), batch)
    assert all(completion.token_ids == done["greedy"].token_ids for completion in done.values())
    close(policy, batch[0], done["greedy"])
    assert all(max(map(abs, done[name].logprobs)) < 1e-6 for name in ("top_k", "top_p", "min_p"))
    alone = run(engine(policy), batch[:1])["greedy"]
    assert alone.token_ids == done["greedy"].token_ids, "without truncation another kernel draws"


@pytest.mark.slow
def test_truncated_tokens_are_drawn_from_what_is_left(policy):
    expect_truncated_distributions(engine(policy, slots=64), policy, TOLERANCE / 4 if GPU else TOLERANCE)


@pytest.mark.skipif(GPU, reason="in bfloat16 tokens differ where two are nearly as probable")
def test_truncated_tokens_are_those_of_the_transformers_engine(policy):
    prompts = [tokens(i, 20) for i in range(8)]
    batch = [Request(f"{i} {s}", prompts[i], 25, i, sampling=s) for i in range(8) for s in (Sampling(), *TRUNCATED)]
    ours, theirs = run(engine(policy), batch), run(TransformersEngine(policy, {STOP}, 16, 512), batch)
    for name, completion in ours.items():
        assert completion.token_ids == theirs[name].token_ids, name
        assert completion.logprobs == pytest.approx(theirs[name].logprobs, abs=TOLERANCE), name


def test_tokens_are_drawn_from_the_policys_distribution(policy):
    expect_the_policys_distribution(engine(policy, slots=64))


def test_sync_takes_over_the_weights(policy):
    other = sharp(new_policy(VOCABULARY, hidden=64, layers=2, seed=9)).to(policy.device)
    expect_a_sync_to_take_all_weights(engine(policy), engine(other), other)


def test_bad_requests_and_decoders_are_refused_with_their_name(policy):
    with pytest.raises(DrKernelError, match="request long: found 600 prompt tokens"):
        engine(policy).add(Request("long", tokens(0, 600), 5, 0))
    with pytest.raises(DrKernelError, match="graphs does not have"):
        load_engine("graphs", policy, {STOP}, may_sleep=True)
    config = new_policy(VOCABULARY, hidden=64, layers=2).model.config
    assert unsupported(config) is None
    config.layer_types = ["full_attention", "sliding_attention"]
    assert unsupported(config) == "layers of type sliding_attention"
    config.num_experts = 8
    assert unsupported(config) == "a mixture of experts (num_experts=8)"


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
def test_graphs_agree_with_transformers_on_a_gpu():
    """Both in bfloat16. Until rounding first decides a token the two draw the same."""
    policy = new_policy(2048, hidden=192, layers=6, seed=2).to("cuda", torch.bfloat16)
    batch = [Request(f"r{i}", tokens(i // 4, 30 + 20 * (i // 4)), 120, seed=i) for i in range(96)]
    results, seconds = {}, {}
    for name in ("graphs", "transformers"):
        made = load_engine(name, policy, {STOP}, 64, 1024)
        run(made, [Request("warm", tokens(0, 30), 8, 0)])
        torch.cuda.synchronize()
        started = time.perf_counter()
        results[name] = run(made, batch)
        seconds[name] = time.perf_counter() - started
        made.close()
    shared = 0
    for request in batch:
        ours, theirs = (results[name][request.id] for name in ("graphs", "transformers"))
        equal = [a == b for a, b in zip(ours.token_ids, theirs.token_ids, strict=False)]
        length = equal.index(False) if False in equal else len(equal)
        shared += length
        differences = torch.tensor(ours.logprobs[:length]) - torch.tensor(theirs.logprobs[:length])
        assert length == 0 or differences.abs().mean() < 0.05
    total = sum(len(c.token_ids) for c in results["graphs"].values())
    speeds = {name: round(sum(len(c.token_ids) for c in results[name].values()) / s) for name, s in seconds.items()}
    print(f"tokens/s {speeds}; {shared} of {total} tokens before the first difference")
    assert shared > 0.2 * total


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
def test_graphs_draw_what_the_same_steps_without_graphs_draw(policy):
    batch = requests(30)
    eager = GraphsEngine(policy, {STOP}, 16, 512, eager=True)
    assert run(engine(policy), batch) == run(eager, batch)
