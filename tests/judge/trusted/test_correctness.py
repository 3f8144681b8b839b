"""Cases, tolerances, other weights and smaller sizes: what right means."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from drkernel.judge.boundary.construction import perturbed_construction
from drkernel.judge.trusted import cases, shrink, weight_perturbation
from drkernel.judge.trusted.cases import PUBLISHED, Perturbation, Plan, Seeds
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.tolerance import EPS, Expected
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task


def expected(function, *inputs, precision="ieee", terms=1.0) -> Expected:
    eps = EPS[precision]
    generator = torch.Generator().manual_seed(0)
    wide = [x.double() for x in inputs]
    jittered = [x * (1 + eps * (2 * torch.rand(x.shape, generator=generator, dtype=torch.float64) - 1)) for x in wide]
    return Expected(function(*wide), function(*inputs), function(*jittered), eps, terms)


DRAW = torch.Generator().manual_seed(0)
X, W = torch.randn(64, 256, generator=DRAW), torch.randn(256, 128, generator=DRAW)


@pytest.mark.parametrize(
    ("function", "rewritten"),
    [
        (lambda x: torch.softmax(x, -1), lambda x: torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)),
        (lambda x: x.sum(-1), lambda x: x.flip(-1).view(64, 8, 32).sum(1).sum(-1)),
        (lambda x: x @ W.to(x.dtype), lambda x: (x[:, :100] @ W[:100]) + (x[:, 100:] @ W[100:])),
        (torch.tanh, lambda x: 2 * torch.sigmoid(2 * x) - 1),
        (lambda x: x.var(-1), lambda x: ((x - x.mean(-1, keepdim=True)) ** 2).sum(-1) / 255),
    ],
)
def test_other_ways_to_compute_the_same_are_right(function, rewritten):
    answer = rewritten(X)
    if function(X).shape == X.shape and answer.min() >= 0:
        answer = answer / answer.sum(-1, keepdim=True)
    assert expected(function, X, terms=256).check(OutputTensor(answer)) is None


def test_reduced_precision_is_wrong_under_ieee_and_right_where_it_is_allowed():
    product = lambda x: x @ W.to(x.dtype)
    low = (X.bfloat16() @ W.bfloat16()).float()
    assert expected(product, X, terms=256).check(OutputTensor(low)).reason == "wrong_values"
    assert expected(product, X, precision="low", terms=256).check(OutputTensor(low)) is None


@pytest.mark.parametrize("spoil", [0.0, float("nan"), float("inf"), 1e-3])
def test_a_single_wrong_element_is_found(spoil):
    answer = torch.softmax(X, -1)
    column = int(answer[3].argmax())
    answer[3, column] = spoil if spoil != 1e-3 else answer[3, column] * 1.001
    problem = expected(lambda x: torch.softmax(x, -1), X).check(OutputTensor(answer))
    assert problem and problem.index == (3, column) and problem.share == pytest.approx(1 / answer.numel())


def test_infinities_must_be_where_the_reference_has_them():
    masked = lambda x: x.masked_fill(x > 1, float("-inf"))
    right = expected(masked, X)
    assert right.check(OutputTensor(masked(X))) is None
    assert right.check(OutputTensor(masked(X).clamp(min=-1e30))).reason == "not_finite"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (OutputTensor(X.half()), "wrong_dtype"),
        (OutputTensor(X[:, :5]), "wrong_shape"),
        ((OutputTensor(X),), "wrong_structure"),
        (None, "wrong_structure"),
        (OutputTensor(X, expanded=True), "expanded"),
    ],
)
def test_form_comes_before_values(answer, reason):
    assert expected(lambda x: x * 1, X).check(answer).reason == reason


def test_indices_must_be_exact():
    right = expected(lambda x: x.argmax(-1), X)
    assert right.check(OutputTensor(X.argmax(-1))) is None
    assert right.check(OutputTensor(X.argmin(-1))).reason == "wrong_values"


def _task(body: str, inputs: str, init: str = "[]", sizes: str = "", **more) -> Task:
    source = f"import torch\nimport torch.nn as nn\n{sizes}\nclass Model(nn.Module):\n{body}\n"
    source += f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return {init}\n"
    return Task("a/task", source, **more)


FORWARD = "    def forward(self, x):\n        return "


def test_kernelbench_sizes_shrink_until_they_can_be_interpreted():
    task = shrink.fit(_task(FORWARD + "torch.relu(x)", "[torch.rand(batch, dim)]", sizes="batch = 4096\ndim = 393216"))
    (x,) = Reference(task, task.small).inputs(0)
    assert 1024 < x.numel() <= shrink.CHEAP.values


def test_literals_and_tuples_shrink_too_and_lines_stay_where_they_are():
    task = _task(FORWARD + "x.sum(1)", "[torch.rand(16384, *shape)]", sizes="shape = (32768,)")
    small = shrink.fit(task)
    assert Reference(small, small.small).inputs(0)[0].numel() <= shrink.CHEAP.values
    assert len(small.source.splitlines()) == len(task.source.splitlines())


def test_a_task_that_cannot_shrink_says_why():
    task = _task(FORWARD + "x @ x[:, :7].t()", "[torch.rand(n * 300, n * 300)]", sizes="n = 8")
    with pytest.raises(DrKernelError, match="a/task"):
        shrink.fit(task)


def test_divisibility_survives_shrinking():
    body = "    def __init__(self, c, g):\n        super().__init__()\n        self.norm = nn.GroupNorm(g, c)\n"
    body += "    def forward(self, x):\n        return self.norm(x)"
    task = _task(body, "[torch.rand(b, c, s, s)]", "[c, g]", "b = 128\nc = 768\ng = 12\ns = 256")
    small = shrink.fit(task).small
    assert small["c"] < 768 and small["c"] % small.get("g", 12) == 0


def test_every_regime_draws_other_inputs_and_none_leaves_the_domain():
    task = _task(FORWARD + "torch.log(x)", "[torch.rand(20, 30) + 0.1]")
    model = cases.build(Reference(task), 1, Perturbation.OVERWRITE)
    drawn = {name: cases.draw(task, Plan(name, PUBLISHED, name), model, 1, 1.0) for name in cases.REGIMES}
    assert all(case.expected.finite for case in drawn.values() if case)
    assert drawn["given"] and drawn["large"] and drawn["large"].inputs[0].max() > 5


def test_structure_of_inputs_survives_every_regime():
    task = _task(
        "    def forward(self, a, mask):\n        return (a @ a) * mask",
        "[torch.tril(torch.rand(16, 16)), (torch.rand(16, 16) > 0.5).float()]",
    )
    model = cases.build(Reference(task), 1, Perturbation.OVERWRITE)
    for name in cases.REGIMES:
        case = cases.draw(task, Plan(name, PUBLISHED, name), model, 1, 16.0)
        lower, mask = case.inputs
        assert torch.equal(lower, torch.tril(lower)) and set(mask.unique().tolist()) <= {0.0, 1.0}


def test_integer_inputs_stay_in_range():
    body = "    def __init__(self):\n        super().__init__()\n        self.table = nn.Embedding(10, 4)\n"
    task = _task(body + FORWARD + "self.table(x)", "[torch.randint(0, 10, (50,))]")
    model = cases.build(Reference(task), 1, Perturbation.OVERWRITE)
    for name in cases.REGIMES:
        case = cases.draw(task, Plan(name, PUBLISHED, name), model, 1, 1.0)
        assert case.inputs[0].min() >= 0 and case.inputs[0].max() < 10


def test_seeds_depend_on_secret_submission_task_and_case_and_on_nothing_else():
    draws = [Seeds(b"s", "source", "task")("case"), Seeds(b"t", "source", "task")("case")]
    draws += [
        Seeds(b"s", "other", "task")("case"),
        Seeds(b"s", "source", "other")("case"),
        Seeds(b"s", "source", "task")(1),
    ]
    assert len(set(draws)) == 5 and draws[0] == Seeds(b"s", "source", "task")("case")


def _linear():
    torch.manual_seed(3)
    return nn.Linear(6, 4)


def test_weights_are_followed_through_names_transposes_and_concatenation():
    model = _linear()
    old = {name: p.detach().clone() for name, p in model.named_parameters()}
    new = weight_perturbation.perturbed(model, 1)
    assert all(not torch.equal(old[name], new[name]) for name in old)
    packed = {"w": old["weight"].t().contiguous(), "b": old["bias"]}
    writes = weight_perturbation.follow(old, packed, new)
    assert torch.equal(writes["w"], new["weight"].t()) and torch.equal(writes["b"], new["bias"])
    both = {"a": torch.randn(3, 5), "b": torch.randn(2, 5)}
    changed = {name: value + 1 for name, value in both.items()}
    joined = weight_perturbation.follow(both, {"ab": torch.cat([both["a"], both["b"]])}, changed)
    assert torch.equal(joined["ab"], torch.cat([changed["a"], changed["b"]]))
    assert weight_perturbation.follow(old, {"weight": old["weight"]}, new) is None


def test_construction_can_perturb_constants_alike_on_both_sides_without_touching_other_draws():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 5))
    with perturbed_construction():
        torch.manual_seed(0)
        first = nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 5))
        parameter = nn.Parameter(torch.ones(5))
    assert torch.equal(first[0].weight, parameter) and not torch.equal(first[0].weight, plain[0].weight)
    assert torch.equal(first[1].weight, plain[1].weight)
    assert torch.equal(nn.Parameter(torch.ones(5)), torch.ones(5))


def test_modes_are_told_apart():
    norm = "    def __init__(self):\n        super().__init__()\n        self.inner = nn.{}\n"
    forward = "    def forward(self, x):\n        return self.inner(x)"
    found = [
        cases.mode_alternatives(Reference(_task(norm.format(layer) + forward, "[torch.rand(8, 6)]")), 1)
        for layer in ("ReLU()", "Dropout(0.5)", "BatchNorm1d(6)")
    ]
    assert found == [[(False, True)], [(False,)], [(True,), (False,)]]


def test_the_digest_of_a_task_covers_its_precision():
    task = _task(FORWARD + "x", "[torch.rand(3)]")
    assert task.digest != dataclasses.replace(task, precision="tf32").digest


@pytest.mark.parametrize("shape", [(), (3,), (8, 5), (2, 3, 7), (1, 4)])
def test_the_mixed_regime_keeps_the_shape_and_has_every_regime_in_it(shape):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator)
    for transform in cases.REGIMES["mixed"]:
        assert transform(x, x).shape == x.shape
    x = torch.randn(400, 6, generator=generator)
    parts = cases.REGIMES["mixed"][0](x, x).tensor_split(len(cases.PURE))
    pure = [cases.REGIMES[name][0] for name in cases.PURE]
    for part, regime, given in zip(parts, pure, x.tensor_split(len(cases.PURE)), strict=True):
        assert torch.equal(part, regime(given, given))


def test_lean_plans_try_every_regime_at_a_hidden_shape_and_all_at_once_at_the_published_one():
    plans = list(cases.lean_plans((False, True), shapes=2))
    assert {plan.regime for plan in plans if plan.at_hidden_shape} == {"given", *cases.PURE}
    assert [plan.regime for plan in plans if plan.model == PUBLISHED] == ["mixed"]
    assert {plan.train for plan in plans} == {False, True}


def test_a_few_rows_do_not_pass_for_the_mean_of_very_many():
    exact = torch.tensor(0.5, dtype=torch.float64)
    expected = Expected(exact, exact.float(), exact, 2.0**-23, terms=1.3e8)
    assert expected.check(OutputTensor(exact.float() * (1 + 1e-4))) is None
    assert expected.check(OutputTensor(exact.float() * (1 + 5e-3))).reason == "wrong_values"
