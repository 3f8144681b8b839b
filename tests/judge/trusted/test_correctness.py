"""Cases, tolerances, other weights and smaller sizes: what right means."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from drkernel.judge.boundary.construction import perturbed_construction
from drkernel.judge.trusted.cases import (
    cases,
    domain,
    modes,
    plans,
    reference_model,
    regimes,
    structure,
    weight_perturbation,
)
from drkernel.judge.trusted.cases.cases import Seeds
from drkernel.judge.trusted.cases.plans import PUBLISHED
from drkernel.judge.trusted.cases.reference_model import Perturbation
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.sizes import shrink
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task
from tests.judge.examples import tasks
from tests.judge.expectations import expected

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
    assert expected(function, X).check(OutputTensor(answer)) is None


def online_softmax(x):
    """Block by block, as kernels with one pass have it: all later blocks are added to a number near one."""
    largest, total = torch.full(x.shape[:1], -torch.inf), torch.zeros(x.shape[0])
    for block in x.split(64, 1):
        new = torch.maximum(largest, block.amax(1))
        total = total * torch.exp(largest - new) + torch.exp(block - new[:, None]).sum(1)
        largest = new
    return torch.exp(x - largest[:, None]) / total[:, None]


@pytest.mark.slow
def test_an_honest_error_of_a_single_element_is_far_from_its_bound():
    """Each row has one element with an error: in one run with noise that of two operators may cancel there."""
    task = tasks()["softmax"]
    reference = Reference(task, {"rows": 256})
    plan = plans.Plan("one large value in each row", PUBLISHED, "sparse")
    case = cases.draw(task, plan, reference_model.build(reference, 1), 8, structure.observe(reference, 1))
    (x,) = case.inputs
    exact = torch.softmax(x.double(), 1)
    six_times = exact + 6 * (online_softmax(x).double() - exact)
    assert case.expected.check(OutputTensor(six_times.float())) is None


def test_reduced_precision_is_wrong_under_ieee_and_right_where_it_is_allowed():
    product = lambda x: x @ W.to(x.dtype)
    low = (X.bfloat16() @ W.bfloat16()).float()
    assert expected(product, X).check(OutputTensor(low)).reason == "wrong_values"
    assert expected(product, X, precision="low").check(OutputTensor(low)) is None


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


def test_deep_networks_with_other_running_statistics_stay_finite():
    layers = [module for _ in range(60) for module in (nn.Linear(16, 16), nn.BatchNorm1d(16))]
    with perturbed_construction():
        constructed = nn.Sequential(*layers)
    model = nn.Sequential(*[type(layer)(*([16] * (1 + (number + 1) % 2))) for number, layer in enumerate(constructed)])
    values = weight_perturbation.perturbed(model, 1)
    small = [name for name, value in values.items() if name.endswith("running_var") and value.min() < 0.1]
    assert len(small) == 4
    weight_perturbation.assign(model, values)
    assert model.eval()(torch.rand(8, 16)).isfinite().all()


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


def test_matrices_may_lie_beyond_the_range_of_fp16():
    values = {"matrix": torch.randn(64, 64) / 8, "bias": torch.randn(64), "zero": torch.zeros(2, 2)}
    wide = weight_perturbation.beyond_half(values)
    assert torch.equal(wide["bias"], values["bias"]) and torch.equal(wide["zero"], values["zero"])
    factor = float(wide["matrix"][0, 0] / values["matrix"][0, 0])
    assert torch.equal(wide["matrix"], values["matrix"] * factor) and float(torch.tensor(factor).log2()) % 1 == 0
    assert float(wide["matrix"].half().isinf().double().mean()) > 0.5


def test_construction_can_perturb_constants_alike_on_both_sides_without_touching_other_draws():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 5))
    with perturbed_construction():
        torch.manual_seed(0)
        first = nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 5))
        parameter = nn.Parameter(torch.ones(5))
        nn.BatchNorm1d(5, device="meta")
        nn.Parameter(torch.ones(5, device="meta"))  # has no value to change
    assert torch.equal(first[0].weight, parameter) and not torch.equal(first[0].weight, plain[0].weight)
    assert torch.equal(first[1].weight, plain[1].weight)
    assert torch.equal(nn.Parameter(torch.ones(5)), torch.ones(5))


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.weight_norm])
def test_construction_can_perturb_the_magnitude_of_normalised_weights(norm):
    layer = lambda: norm(nn.Linear(8, 4))
    directions = lambda model: next(p for _, p in model.named_parameters() if p.shape == (4, 8))
    with perturbed_construction():
        torch.manual_seed(0)
        found = layer()
        torch.manual_seed(0)
        assert torch.equal(layer().weight, found.weight)
    assert not torch.allclose(found.weight, directions(found))
    plain = layer()
    assert torch.allclose(plain.weight, directions(plain))


def test_modes_are_told_apart():
    norm = "    def __init__(self):\n        super().__init__()\n        self.inner = nn.{}\n"
    forward = "    def forward(self, x):\n        return self.inner(x)"
    found = [
        modes.mode_alternatives(Reference(_task(norm.format(layer) + forward, "[torch.rand(8, 6)]")), 1)
        for layer in ("ReLU()", "Dropout(0.5)", "BatchNorm1d(6)")
    ]
    assert found == [[(False, True)], [(False,)], [(True,), (False,)]]


def test_the_digest_of_a_task_covers_its_precision():
    task = _task(FORWARD + "x", "[torch.rand(3)]")
    assert task.digest != dataclasses.replace(task, precision="tf32").digest


def test_lean_plans_try_every_regime_at_a_hidden_shape_and_all_at_once_at_the_published_one():
    lean = list(plans.lean_plans((False, True), shapes=2))
    assert {plan.regime for plan in lean if plan.at_hidden_shape} == {"given", *regimes.PURE}
    assert [plan.regime for plan in lean if plan.model == PUBLISHED] == ["mixed", "sparse"]
    assert {plan.train for plan in lean} == {False, True}


def test_what_would_end_a_process_on_a_gpu_is_an_error():
    with domain.InDomain():
        nn.functional.binary_cross_entropy(torch.tensor([0.0, 1.0]), torch.ones(2))
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            nn.functional.binary_cross_entropy(torch.tensor([0.5, 1.5]), torch.ones(2))


DEEP = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [{layer} for _ in range({depth})]
        self.layers = nn.Sequential(*layers)
    def forward(self, x):
        return self.layers(x)
def get_inputs():
    return [torch.rand(8, 32)]
def get_init_inputs():
    return []
"""
PLAIN = "nn.Sequential(nn.Linear(32, 32), nn.ReLU())"


@pytest.mark.parametrize("perturbation", [Perturbation.OVERWRITE, Perturbation.CONSTRUCTION])
def test_an_error_in_the_first_layer_of_a_deep_network_shows(perturbation):
    """With PyTorch's default weights the outputs of 16 layers are those of the last biases, within rounding."""
    reference = Reference(Task("t", DEEP.format(layer=PLAIN, depth=16)))
    for seed in range(4):
        model = reference_model.build(reference, seed, perturbation).model
        right = reference.forward(model, inputs := reference.inputs(seed))
        model.layers[0][0].bias.data.zero_()
        wrong = reference.forward(model, inputs)
        assert float((wrong - right).norm() / right.norm()) > 1e-3


@pytest.mark.parametrize(("layer", "depth"), [(PLAIN, 4), ("nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32))", 16)])
def test_matrices_stay_where_outputs_follow_from_inputs(layer, depth):
    reference = Reference(Task("t", DEEP.format(layer=layer, depth=depth)))
    model = reference_model.build(reference, 1, Perturbation.CONSTRUCTION)
    assert torch.equal(model.model.layers[0][0].weight, reference.model(1).layers[0][0].weight)
    assert not model.construction.get("larger")


def test_larger_matrices_are_constructed_from_the_same_draws():
    torch.manual_seed(0)
    plain = nn.Linear(8, 4)
    with perturbed_construction(larger=True):
        torch.manual_seed(0)
        larger = nn.Linear(8, 4)
    assert torch.allclose(larger.weight, plain.weight * 6**0.5) and torch.equal(larger.bias, plain.bias)
    torch.manual_seed(0)
    assert torch.equal(nn.Linear(8, 4).weight, plain.weight)


@pytest.mark.parametrize("name", ["constant_", "ones_"])
def test_constants_have_noise_once_whatever_mode_is_active(name):
    """`torch.device` makes an initialiser call itself once more."""
    value = [0.25] * (name == "constant_")
    with perturbed_construction():
        plain = getattr(nn.init, name)(torch.empty(4), *value)
        with torch.device("cpu"):
            assert torch.equal(getattr(nn.init, name)(torch.empty(4), *value), plain)


def test_in_evaluation_a_deep_network_has_values_of_the_size_of_its_biases():
    """Small running variances, one behind the other, would make values of a million."""
    norm = "nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU())"
    reference = Reference(Task("t", DEEP.format(layer=norm, depth=12)))
    for seed in range(8):
        model = reference_model.build(reference, seed, Perturbation.OVERWRITE).model.eval()
        assert 0.01 < float(reference.forward(model, reference.inputs(seed)).square().mean().sqrt()) < 64


def test_a_matrix_of_small_numbers_is_large_enough_that_activations_are_no_lines():
    model = nn.Linear(24, 96)
    nn.init.trunc_normal_(model.weight, std=0.02)
    assert weight_perturbation.perturbed(model, 1)["weight"].norm(dim=1).mean() > 0.4


LOOP = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 32)
        self.lstm = nn.LSTM(16, 32, 2)
    def forward(self, x, h):
        {forward}
def get_inputs():
    return [torch.rand(64, 8, 16), torch.rand(2, 8, 32)]
def get_init_inputs():
    return []
"""
BY_HAND = "h = h[0]\n        for y in x: h = torch.tanh(self.a(y) + self.b(h))\n        return h"


@pytest.mark.parametrize("forward", [BY_HAND, "return self.lstm(x, (h, h))[0][-1]"])
def test_a_recurrent_network_remembers_where_it_began(forward):
    """With PyTorch's default weights what was told forty steps before is below rounding."""
    reference = Reference(Task("t", LOOP.format(forward=forward)))
    for seed in range(3):
        model = reference_model.build(reference, seed, Perturbation.OVERWRITE).model
        x, h = reference.inputs(seed)
        right, near, wrong = (reference.forward(model, given) for given in ([x, h], [x * (1 + 1e-6), h], [x, 0 * h]))
        assert float((wrong - right).norm() / right.norm()) > 1e-5
        assert float((near - right).norm() / right.norm()) < 1e-3


@pytest.mark.parametrize(("sum_of", "precision"), [("h + 0.01 * ", "ieee"), ("", "low")])
def test_matrices_stay_where_each_round_shows_or_16_bits_round_it_away(sum_of, precision):
    source = LOOP.format(forward=BY_HAND.replace("torch.tanh(", f"{sum_of}torch.tanh("))
    reference = Reference(Task("t", source, precision=precision))
    model = reference_model.build(reference, 1, Perturbation.OVERWRITE).model
    assert float(model.b.weight.norm(dim=1).mean()) < 1
