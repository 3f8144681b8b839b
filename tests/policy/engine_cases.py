"""What the tests of all engines ask of them."""

import torch

from drkernel.policy import Engine, Policy, Request, Sampling
from drkernel.policy.engine import Completion
from drkernel.types import Batch

VOCABULARY = 64


def tokens(seed: int, count: int) -> list[int]:
    return torch.randint(2, VOCABULARY, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def run(made: Engine, batch: list[Request], delay: int = 0) -> dict[str, Completion]:
    """All completions; `delay` engine steps pass between the arrivals."""
    done: dict[str, Completion] = {}
    for request in batch:
        made.add(request)
        for _ in range(delay):
            done.update((c.id, c) for c in made.step())
    while made.busy:
        done.update((c.id, c) for c in made.step())
    return done


def score(policy: Policy, prompt: list[int], completion: Completion, temperature: float = 1.0) -> torch.Tensor:
    """The trainer's log-probabilities of a completion."""
    ids = prompt + completion.token_ids
    mask = torch.arange(len(ids)) >= len(prompt)
    zeros = torch.zeros(len(ids))
    row = torch.tensor([0, len(ids)], dtype=torch.int32)
    batch = Batch(torch.tensor(ids), torch.arange(len(ids)), row, mask, zeros, zeros, zeros.long(), zeros.long())
    return policy.logprobs(batch.to(policy.device), temperature).logprobs.cpu()[mask]


def expect_the_policys_distribution(made: Engine) -> None:
    """First tokens of 3,000 requests with the same prompt are as frequent as their log-probabilities say."""
    prompt = tokens(8, 12)
    drawn = run(made, [Request(str(i), prompt, 1, seed=i) for i in range(3000)])
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in drawn.values()]), minlength=VOCABULARY)
    logprobs = {c.token_ids[0]: c.logprobs[0] for c in drawn.values()}
    expected = torch.tensor([3000 * torch.tensor(logprobs.get(t, -torch.inf)).exp().item() for t in range(VOCABULARY)])
    common = expected > 20
    chi_square = ((counts - expected)[common] ** 2 / expected[common]).sum()
    assert chi_square < 2.5 * int(common.sum())


TRUNCATED = [
    Sampling(top_p=0.7),
    Sampling(top_k=5),
    Sampling(min_p=0.2),
    Sampling(0.7, top_p=0.8, top_k=8, min_p=0.05),
]


def truncated_distribution(whole: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """What is sampled of a distribution [V]: by the definitions, token by token, in vLLM's order; it adds up to 1."""
    kept = [t for t in range(len(whole)) if whole[t] >= sampling.min_p * whole.max()]
    kept.sort(key=lambda t: -whole[t])
    kept = kept[: sampling.top_k or None]
    total, reached, nucleus = float(whole[kept].sum()), 0.0, []
    for token in kept:
        if reached < sampling.top_p * total:
            nucleus.append(token)
        reached += float(whole[token])
    found = torch.zeros_like(whole)
    found[nucleus] = whole[nucleus] / whole[nucleus].sum()
    return found


def distribution(policy: Policy, prompt: list[int], temperature: float, vocabulary: int = VOCABULARY) -> torch.Tensor:
    """The trainer's probabilities of the token after a prompt; [V]."""
    every = [Completion("", [token], [0.0], False) for token in range(vocabulary)]
    return torch.cat([score(policy, prompt, each, temperature) for each in every]).exp()


def expect_truncated_distributions(
    made: Engine, policy: Policy, tolerance: float, prompt: list[int] | None = None, vocabulary: int = VOCABULARY
) -> None:
    """First tokens of 2,000 requests are drawn from what truncation leaves, and have its log-probabilities; a seed
    gives the same ones again, alone or among requests that are truncated otherwise."""
    prompt = prompt or tokens(8, 12)
    batch = [
        Request(f"{kind} {i}", prompt, 1, seed=i, sampling=sampling)
        for i in range(2000)
        for kind, sampling in enumerate([Sampling(), *TRUNCATED])
    ]
    done = run(made, batch)
    for kind, sampling in enumerate([Sampling(), *TRUNCATED]):
        expected = truncated_distribution(distribution(policy, prompt, sampling.temperature, vocabulary), sampling)
        drawn = [done[f"{kind} {i}"] for i in range(2000)]
        counts = torch.bincount(torch.tensor([c.token_ids[0] for c in drawn]), minlength=vocabulary)
        assert counts[expected == 0].sum() <= 2000 * tolerance, sampling  # a token at the border, in bfloat16
        common = expected > 0.01
        chi_square = ((counts - 2000 * expected)[common] ** 2 / (2000 * expected[common])).sum()
        assert int(common.sum()) > 1 and chi_square < 2.5 * int(common.sum()) + 3, sampling
        for completion in drawn[:200]:
            if (share := expected[completion.token_ids[0]]) > 0:
                assert abs(completion.logprobs[0] - share.log()) < 2 * tolerance, sampling
        again = [Request(f"{kind} {i}", prompt, 1, seed=i, sampling=sampling) for i in range(50)]
        found = run(made, again)
        assert all(found[each.id].token_ids == done[each.id].token_ids for each in again), sampling


def expect_a_sync_to_take_all_weights(made: Engine, fresh: Engine, other: Policy) -> None:
    """`made` has other weights; `fresh` was made from those of `other`, which are zeroed in the end."""
    request = Request("a", tokens(1, 20), 30, 3)
    before = run(made, [request])
    made.sync(other)
    assert run(made, [request]) == run(fresh, [request]) != before
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    assert run(made, [request]) == run(fresh, [request]), "the engine owns its weights"
