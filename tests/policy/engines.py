"""What the tests of all engines ask of them."""

import torch

from drkernel.policy import Engine, Policy, Request
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
