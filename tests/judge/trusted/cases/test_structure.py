"""P8: inputs keep the structure that get_inputs gives them, in every regime and after every perturbation."""

from __future__ import annotations

import pytest
import torch

from drkernel.judge.trusted.cases import cases, reference_model, regimes, structure
from drkernel.judge.trusted.cases.cases import Case
from drkernel.judge.trusted.cases.plans import PUBLISHED, Plan
from drkernel.judge.trusted.cases.reference_model import Perturbation
from drkernel.judge.trusted.cases.structure import Use
from drkernel.tasks.module import Reference
from drkernel.types import Task

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def forward(self, {names}):
        return {output}
def get_inputs():
    {setup}
    return [{inputs}]
def get_init_inputs():
    return []
"""


def task(inputs: str, setup: str = "pass", output: str = "a * 1.5", names: str = "a") -> Task:
    return Task("a/task", SOURCE.format(names=names, output=output, setup=setup, inputs=inputs))


def drawn(task: Task) -> list[list]:
    """The inputs of every regime and every variant, and of perturbations."""
    reference = Reference(task)
    sources = structure.observe(reference, 1)
    changes = [
        regimes.change(name, variant, seed=5) for name, number in regimes.REGIMES.items() for variant in range(number)
    ]
    changes += [regimes.touch(seed) for seed in range(5)]
    return [structure.draw(reference, sources, 1, change) for change in changes]


def close(a, b):
    return torch.allclose(a, b, rtol=1e-4, atol=1e-5)


STRUCTURES = {
    "lower triangle": ("torch.tril(torch.rand(24, 24))", "pass", lambda a: torch.equal(a, a.tril())),
    "unit diagonal": (
        "torch.tril(torch.rand(24, 24), -1) + torch.eye(24)",
        "pass",
        lambda a: bool((a.diagonal() == 1).all()),
    ),
    "symmetric": ("(x + x.T) / 2", "x = torch.randn(24, 24)", lambda a: torch.equal(a, a.T)),
    "diagonal": ("torch.diag(torch.rand(24))", "pass", lambda a: torch.equal(a, a.diagonal().diag())),
    "probabilities": (
        "torch.softmax(torch.randn(24, 40), -1)",
        "pass",
        lambda a: bool((a >= 0).all()) and close(a.sum(-1), torch.ones(24)),
    ),
    "normalised": ("x / x.sum(-1, keepdim=True)", "x = torch.rand(24, 40)", lambda a: close(a.sum(-1), torch.ones(24))),
    "unit vectors": (
        "F.normalize(torch.randn(24, 40), dim=-1)",
        "pass",
        lambda a: close(a.norm(dim=-1), torch.ones(24)),
    ),
    "sorted": ("torch.sort(torch.randn(24, 40), -1).values", "pass", lambda a: bool((a.diff(dim=-1) >= 0).all())),
    "positive": ("torch.rand(24, 40) + 0.1", "pass", lambda a: bool((a >= 0.1).all())),
    "absolute": ("torch.randn(24, 40).abs()", "pass", lambda a: bool((a >= 0).all())),
    "within bounds": ("torch.rand(24, 40) * 2 - 1", "pass", lambda a: bool((a.abs() <= 1).all())),
    "mask": ("(torch.rand(24, 40) > 0.5).float()", "pass", lambda a: set(a.unique().tolist()) == {0.0, 1.0}),
    "one-hot": ("F.one_hot(torch.randint(0, 9, (24,)), 9).float()", "pass", lambda a: bool((a.sum(-1) == 1).all())),
    "whole numbers": ("torch.randint(-8, 8, (24, 40)).float()", "pass", lambda a: torch.equal(a, a.round())),
    "positions": ("torch.arange(40).float()", "pass", lambda a: torch.equal(a, torch.arange(40.0))),
    "causal mask": (
        "torch.full((24, 24), float('-inf')).triu(1)",
        "pass",
        lambda a: torch.equal(a, torch.full((24, 24), -torch.inf).triu(1)),
    ),
    "permutation": ("torch.randperm(40)", "pass", lambda a: torch.equal(a.sort().values, torch.arange(40))),
    "indices": ("torch.randint(0, 9, (24,))", "pass", lambda a: int(a.min()) >= 0 and int(a.max()) < 9),
    "signs": ("torch.randint(0, 2, (24,)).float() * 2 - 1", "pass", lambda a: set(a.unique().tolist()) == {-1.0, 1.0}),
    "padded": ("x", "x = torch.randn(24, 40); x[:, 30:] = 0", lambda a: bool((a[:, 30:] == 0).all())),
    "equal rows": ("torch.randn(1, 40).expand(24, 40).contiguous()", "pass", lambda a: bool((a == a[:1]).all())),
    "positive definite": (
        "x @ x.T / 40 + torch.eye(24)",
        "x = torch.randn(24, 40)",
        lambda a: int(torch.linalg.cholesky_ex(a.double())[1]) == 0,
    ),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structure_of_an_input_survives(name):
    inputs, setup, holds = STRUCTURES[name]
    finite = [value for (value,) in drawn(task(inputs, setup)) if name == "causal mask" or value.isfinite().all()]
    assert len(finite) >= 20
    assert all(holds(value) for value in finite)


@pytest.mark.parametrize(
    ("setup", "inputs", "holds"),
    [
        ("a = torch.randn(24, 40)", "a, a.t().contiguous()", lambda a, b: torch.equal(a.t(), b)),
        ("a = torch.randn(24, 40)", "a, a.norm(dim=-1)", lambda a, b: close(a.norm(dim=-1), b)),
        ("a = torch.randn(24, 40)", "a, a.argsort(-1)", lambda a, b: bool((a.gather(1, b).diff(dim=-1) >= 0).all())),
        (
            "n = torch.randint(1, 40, (24,))",
            "torch.arange(40)[None] < n[:, None], n",
            lambda mask, n: torch.equal(mask.sum(-1), n),
        ),
    ],
    ids=["transpose", "norms", "order", "lengths"],
)
def test_an_input_that_follows_from_another_still_does(setup, inputs, holds):
    for values in drawn(task(inputs, setup, names="a, b")):
        assert holds(*values)


@pytest.mark.parametrize(
    ("inputs", "uses"),
    [
        ("torch.rand(3, 4)", [Use.VALUES]),
        ("torch.rand(3, 4) * 5", [Use.VALUES]),
        ("torch.tril(torch.rand(3, 4)).bfloat16()", [Use.VALUES]),
        ("torch.rand(3, 4) + 1", [Use.RANGE]),
        ("torch.randn(3, 4).exp()", [Use.NORMAL]),
        ("torch.randn(3, 4) * (torch.rand(3, 4) > 0.5)", [Use.NORMAL, Use.CHOICE]),
        ("torch.empty(3, 4).uniform_(-2, 2)", [Use.VALUES]),
        ("torch.randint(0, 5, (3,))", [Use.CHOICE]),
    ],
)
def test_draws_are_known_by_what_becomes_of_them(inputs, uses):
    assert [source.use for source in structure.observe(Reference(task(inputs)), 1)] == uses


def test_uniform_numbers_that_are_inputs_may_be_of_either_sign():
    values = [value for (value,) in drawn(task("torch.rand(24, 40)"))]
    assert any((value < 0).any() for value in values) and any((value > 10).any() for value in values)


def _case(task: Task, regime: str) -> Case | None:
    model = reference_model.build(Reference(task), 1, Perturbation.OVERWRITE)
    return cases.draw(task, Plan(regime, PUBLISHED, regime), model, 1, structure.observe(model.reference, 1))


def test_every_regime_draws_other_inputs_and_none_leaves_the_domain():
    found = {name: _case(task("torch.rand(20, 30)", output="torch.log(a)"), name) for name in regimes.REGIMES}
    assert all(case.expected.finite for case in found.values() if case)
    assert found["large"] and found["large"].inputs[0].max() > 5
    found = {name: _case(task("torch.rand(20, 30) * 2 - 1", output="torch.acos(a)"), name) for name in regimes.REGIMES}
    assert all(found.values())


def test_a_perturbation_reaches_the_inputs():
    reference = reference_model.build(Reference(task("torch.tril(torch.rand(3, 3), -1)")), 1)
    sources = structure.observe(reference.reference, 1)
    first = cases.case_with(
        lambda: reference.reference.inputs(1), reference.reference.task, Plan("first"), reference, 1
    )
    for seed in range(20):
        inputs = cases.nearly_same(reference, sources, first, seed)
        assert inputs and not torch.equal(inputs()[0], first.inputs[0])


@pytest.mark.parametrize(
    ("made", "changes"),
    [
        ("torch.linspace(0.1, 0.9, 64)", 1),
        ("(torch.arange(50.0)[:, None] - torch.arange(50.0)).abs() / 7", 2),
        ("torch.arange(64.0)", 0),
        ("torch.tril(torch.ones(8, 8)) * 0.5", 0),
        ("torch.arange(64)", 0),
    ],
)
def test_an_input_that_is_always_the_same_is_another_one_in_one_case(made, changes):
    reference = Reference(task(f"torch.rand(3), {made}", names="a, b"))
    inputs, before = reference.inputs(1), reference.inputs(1)
    structure.touch_constants(reference, inputs, 5)
    assert torch.equal(inputs[0], before[0]) and int((inputs[1] != before[1]).sum()) in (changes, min(changes, 1))
    assert inputs[1].dim() < 2 or changes == 0 or torch.equal(inputs[1], inputs[1].T)


@pytest.mark.slow
def test_the_number_that_changes_is_not_one_that_no_output_shows():
    """Nine tenths of a band matrix are next to nothing."""
    band = "torch.exp(-(torch.arange(2048.0)[:, None] - torch.arange(2048.0)).abs() / 8)"
    reference = Reference(task(f"torch.rand(3), {band}", names="a, b"))
    for seed in range(8):
        inputs, before = reference.inputs(1), reference.inputs(1)
        structure.touch_constants(reference, inputs, seed)
        assert float((inputs[1] - before[1]).abs().max()) > 0.02


def test_positive_draws_without_a_bound_are_followed():
    found = structure.observe(Reference(task("torch.empty(30, 4).exponential_()")), 1)
    assert [source.use for source in found] == [Use.VALUES] and found[0].low == 0.0 < found[0].high


def test_one_element_of_each_row_carries_the_result_at_a_random_place():
    (value,) = _case(task("torch.rand(64, 2048)", output="a.sum(-1)"), "sparse").inputs
    top = value.abs().topk(2, -1).values
    assert bool((top[:, 0] > 8).all()) and bool((value.abs().sum(-1) - top[:, 0] < 0.7 * top[:, 0]).all())
    assert len(value.abs().argmax(-1).unique()) > 40


def test_all_rows_are_alike_but_one():
    (value,) = _case(task("torch.rand(64, 48)"), "alike").inputs
    assert sorted(value.unique(dim=0, return_counts=True)[1].tolist()) == [1, 63]


def test_every_row_regime_is_in_the_uneven_one():
    (value,) = _case(task("torch.randn(400, 64)"), "uneven").inputs
    spread, size = value.std(-1), value.abs().amax(-1)
    assert bool((spread == 0).any()) and bool((value.mean(-1) > 12).any())
    assert float(size.max() / size[size > 0].min()) > 1000


INDICES = {
    "of one bound": ("torch.randint(9, (400,))", 0, 8),
    "of two": ("torch.randint(-3, 9, (20, 20))", -3, 8),
    "like others": ("torch.randint_like(torch.zeros(400, dtype=torch.int64), 2, 7)", 2, 6),
    "in place": ("torch.empty(400, dtype=torch.int64).random_(5, 9)", 5, 8),
    "sorted": ("torch.sort(torch.randint(0, 9, (400,))).values", 0, 8),
    "as floats": ("torch.randint(-8, 8, (24, 40)).float()", -8, 7),
}


@pytest.mark.parametrize("name", INDICES)
def test_indices_crowd_at_one_or_at_the_ends(name):
    made, first, last = INDICES[name]
    own = task(f"{made}, torch.rand(3)", names="a, b")
    found = {regime: _case(own, regime).inputs[0].long() for regime in ("crowded", "ends")}
    assert 0.4 < float((found["crowded"] == found["crowded"].flatten().mode().values).double().mean()) < 0.8
    assert found["crowded"].aminmax().min >= first and found["crowded"].aminmax().max <= last
    assert found["ends"].unique().tolist() == [first, last]
    assert regimes.has_choices(structure.observe(Reference(own), 1))


@pytest.mark.parametrize(
    "made", ["torch.randperm(400)", "torch.randint(0, 10**9, (40,))", "(torch.rand(400) > 0.5).float()"]
)
def test_what_may_have_to_be_distinct_or_is_no_index_stays(made):
    reference = Reference(task(made))
    sources = structure.observe(reference, 1)
    for regime in regimes.CHOICES:
        drawn = structure.draw(reference, sources, 1, regimes.change(regime, 0, 1))
        assert torch.equal(drawn[0], reference.inputs(1)[0])


def test_a_number_that_sizes_inputs_is_no_index():
    reference = Reference(task("torch.rand(n)", "n = int(torch.randint(5, 90, (1,)))"))
    sources = structure.observe(reference, 1)
    assert not regimes.has_choices(sources)
    assert len(structure.draw(reference, sources, 1, regimes.change("ends", 0, 1))[0]) == len(reference.inputs(1)[0])


@pytest.mark.parametrize("columns", [64, 100])
def test_rows_are_sorted_or_have_their_largest_side_by_side(columns):
    (value,) = _case(task(f"torch.randn(400, {columns})"), "ordered").inputs
    steps = value.diff(dim=-1)
    assert 50 < int((steps >= 0).all(-1).sum()) < 150 and 50 < int((steps <= 0).all(-1).sum()) < 150
    for end in (value, -value):
        first = end.topk(4, dim=-1).indices.sort(-1).values
        assert int((first[:, 3] - first[:, 0] == 3).sum()) > 200  # side by side
        for step in (4, 8, 16):  # of each power of two between them, there are rows
            assert bool((first.diff(dim=-1) == step).all(-1).any())
    assert len(value.argmax(-1).unique()) > 4


def test_half_of_the_columns_of_shifted_values_are_ordered_along_another_dimension():
    values = torch.randn(64, 200)
    numbers, source = values.clone(), structure.Source(Use.VALUES, -3.0, 3.0, True)
    regimes.change("mirrored", 1, 5)(numbers, source, 0)
    first = numbers.topk(4, dim=0).indices.sort(0).values
    assert 30 < int((first[3] - first[0] == 3).sum()) < 100
    assert torch.allclose(numbers.sort(0).values, (-1.5 * values).sort(0).values, atol=1e-5)


def test_ordered_rows_hold_the_numbers_that_were_drawn():
    values = torch.randn(30, 70)
    numbers, source = values.clone(), structure.Source(Use.VALUES, -3.0, 3.0, True)
    regimes.change("ordered", 2, 5)(numbers, source, 0)
    assert torch.equal(numbers.sort(-1).values, values.sort(-1).values) and not torch.equal(numbers, values)


@pytest.mark.parametrize("shape", ["()", "(3,)", "(8, 5)", "(2, 3, 7)", "(1, 4)", "(0, 4)", "(4, 0)"])
def test_regimes_take_any_shape(shape):
    assert all(value.shape == torch.zeros(eval(shape)).shape for (value,) in drawn(task(f"torch.rand({shape})")))


VARYING = {
    "until one is large enough": "x = torch.rand(1)\n    while float(x) < 0.9:\n        x = torch.rand(1)",
    "until one of Python's is": "while random.random() < 0.9:\n        torch.rand(1)",
    "for each of a random number of layers": "x = sum(torch.rand(8) for _ in range(int(torch.randint(1, 9, (1,)))))",
}


@pytest.mark.parametrize("setup", VARYING.values(), ids=VARYING)
def test_draws_may_vary_in_number(setup):
    reference = Reference(task("torch.rand(8, 8)", f"import random\n    {setup}"))
    sources = structure.observe(reference, 1)
    lengths = set()
    for seed in range(20):
        (plain,), (large,) = (
            structure.draw(reference, sources, seed, change) for change in (None, regimes.change("large", 0, seed))
        )
        lengths.add(len(structure.observe(reference, seed)))
        assert not torch.equal(plain, large)
    assert len(lengths) > 1


def test_what_decides_how_often_is_drawn_stays_as_it_is():
    setup = "x = torch.rand(1)\n    while not 0.4 < float(x) < 0.5:\n        x = torch.rand(1)"
    reference = Reference(task("x * torch.rand(8)", setup))
    sources = structure.observe(reference, 1)
    for seed in range(20):
        values = structure.draw(reference, sources, seed, regimes.change("mirrored", 0, seed))[0]
        assert 0 <= float(values.min()) <= float(values.max()) < 0.5


def test_draws_that_numpy_decides_on_cannot_be_changed():
    setup = "x = torch.rand(1)\n    while not 0.4 < x.numpy()[0] < 0.5:\n        x = torch.rand(1)"
    reference = Reference(task("x * torch.rand(8)", setup))
    sources = structure.observe(reference, 1)
    with pytest.raises(structure.Unsteady, match="a/task: how often get_inputs draws random numbers hangs on"):
        for seed in range(20):
            structure.draw(reference, sources, seed, regimes.change("mirrored", 0, seed))


def test_a_draw_on_the_meta_device_has_no_values_to_change():
    """An input that has the shape of a model's output, as a backward pass has: the model is built there."""
    setup = 'with torch.device("meta"):\n        model = nn.Linear(3, 4)\n    y = model(torch.randn(2, 3).to("meta"))'
    reference = Reference(task("torch.randn(y.shape)", setup))
    sources = structure.observe(reference, 1)
    assert len(sources) == 2
    (plain,), (large,) = (
        structure.draw(reference, sources, 1, regimes.change("large", 0, 1) if x else None) for x in (0, 1)
    )
    assert plain.shape == large.shape == (2, 4) and not torch.equal(plain, large)
