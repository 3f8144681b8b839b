"""Cases that submissions to a task share: what is the same for all of them, what is not, and what is kept."""

from __future__ import annotations

import functools

import pytest
import torch

from drkernel.judge.trusted.cases import cases, reruns, structure
from drkernel.judge.trusted.cases.cases import Seeds
from drkernel.judge.trusted.cases.plans import FIRST_HIDDEN, plans, special_plans
from drkernel.judge.trusted.cases.shared_cases import TELLING, SharedCases
from drkernel.judge.trusted.outputs import all_same, leaves
from drkernel.judge.trusted.paired_models import PairedModels
from drkernel.judge.trusted.prepare import PreparedTask, PreparedTaskCache
from drkernel.tasks.module import Reference
from drkernel.types import Task

SOURCE = """
import torch
from torch import nn

N, M = 64, 48


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return {outputs}


def get_inputs():
    return [torch.randn(N, M)]


def get_init_inputs():
    return [M]
"""
MANY, FEW = "torch.tanh(x * self.scale)", "(x * self.scale).sum()"


class Client:
    """A runner that builds models whose weights can be overwritten."""

    def build(self, number, model):
        return {name: tensor.clone() for name, tensor in model.initial_weights.items()}

    def write(self, number, values):
        pass


def prepared(outputs: str, name: str = "t", secret: bytes = b"a secret") -> PreparedTask:
    task = Task(name, SOURCE.format(outputs=outputs))
    reference, elsewhere = Reference(task), [Reference(task, {"N": 37, "M": n}) for n in (41, 56)]
    sources, shared = structure.observe(reference, 0), SharedCases(Seeds(secret, task.digest))
    shared.limit = 2**26
    return PreparedTask(task, reference, elsewhere, [(False,)], sources, False, {}, "", {}, shared=shared)


def submission(task, name: str) -> PairedModels:
    return PairedModels(Client(), task, Seeds(b"a secret", name))


def drawn(pair: PairedModels) -> dict:
    chosen = [*plans((False,), 2), *special_plans(False, False, ())]
    return {plan: case for plan in chosen if (case := pair.draw(plan))}


def given_to(case) -> list:
    return leaves(case.inputs)


@pytest.fixture
def counted(monkeypatch):
    """How often expected outputs are computed."""
    calls = []
    compute = cases.expected_outputs
    monkeypatch.setattr(cases, "expected_outputs", lambda *args: (calls.append(args), compute(*args))[1])
    return calls


def test_all_but_the_given_inputs_are_the_same_for_two_submissions_and_computed_once(counted):
    task = prepared(MANY)
    first = drawn(submission(task, "one"))
    before = len(counted)
    second = drawn(submission(task, "other"))
    for case in second.values():
        _ = case.expected
    assert first.keys() == second.keys() and len(first) >= 10
    shared = {plan.name for plan in first if all_same(given_to(first[plan]), given_to(second[plan]), exactly=True)}
    assert shared == {plan.name for plan in first} - {"the given inputs"}
    assert len(counted) - before == 1


def test_the_weights_are_those_that_the_expected_outputs_were_computed_with():
    task = prepared(MANY)
    for name in ("one", "other"):
        pair = submission(task, name)
        for plan, case in drawn(pair).items():
            model = pair.model(plan.model)
            right = reruns.forward(model, model.model, case.inputs, plan.train, case.seed)
            assert torch.equal(right, case.expected.rounded), plan.name


def test_another_secret_or_another_task_shares_nothing():
    tasks = prepared(MANY), prepared(MANY + " + 1"), prepared(MANY, secret=b"another secret")
    first, *others = (drawn(submission(task, "one")) for task in tasks)
    for other in others:
        same = [plan.name for plan in first if all_same(given_to(first[plan]), given_to(other[plan]), exactly=True)]
        assert same == ["the given inputs"]  # whose seeds are those of the submission, here alike


def test_outputs_that_verdicts_could_tell_are_drawn_for_each_submission():
    task = prepared(FEW)
    first, second = (drawn(submission(task, name)) for name in ("one", "other"))
    for plan in first:
        assert not all_same(given_to(first[plan]), given_to(second[plan]), exactly=True), plan.name
    assert all(case.expected.rounded.numel() < TELLING for case in first.values())


def test_the_model_that_is_timed_may_change_and_shared_cases_do_not():
    """As running statistics do in training."""
    task = prepared(MANY)
    pair = submission(task, "one")
    case = next(case for plan, case in drawn(pair).items() if plan.name == "large values")
    with torch.no_grad():
        pair.published.model.scale.zero_()
    [leaf] = case.expected._leaves.values()
    assert torch.allclose(next(iter(leaf.more_noise())).float(), case.expected.rounded, rtol=1e-3, atol=1e-3)


def test_what_has_no_room_is_drawn_again_and_is_the_same():
    task = prepared(MANY)
    task.shared.limit = 0
    first, second = (drawn(submission(task, name)) for name in ("one", "other"))
    hidden = [plan for plan in first if plan.model >= FIRST_HIDDEN]
    assert hidden and task.shared.bytes == 0
    for plan in hidden:
        assert first[plan] is not second[plan]
        assert all_same(given_to(first[plan]), given_to(second[plan]), exactly=True)


def test_the_latest_task_has_half_of_the_room_and_those_before_it_the_other():
    cache = PreparedTaskCache(8, kept=2**22)
    found = {name: prepared(f"{MANY} + {number}", name) for number, name in enumerate("abc")}
    ask = lambda name: cache.get(found[name].task, functools.partial(found.__getitem__, name))
    sizes = []
    for name in "abcab":
        drawn(submission(ask(name), name))
        sizes.append([found[each].shared.bytes for each in "abc"])
    assert found["a"].shared.limit == 2**21 and all(max(each) <= 2**21 for each in sizes)
    assert all(sum(each) <= 2**22 for each in sizes)
    assert all(each["abcab".index("abcab"[place])] > 0 for place, each in enumerate(sizes))
