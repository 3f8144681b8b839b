"""Large calls: compared some rows at a time, no stricter and hardly looser than as a whole."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch

from drkernel.judge.trusted.cases import cases, reference_model, structure
from drkernel.judge.trusted.cases.plans import Plan
from drkernel.judge.trusted.cases.reference_model import Perturbation
from drkernel.judge.trusted.comparison import slices
from drkernel.judge.trusted.comparison.slices import Cut, find_cut
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.tasks.module import Reference
from drkernel.types import Task

TASK = """
import torch, torch.nn as nn, torch.nn.functional as F
B, N = 24, 40
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(N), nn.Linear(N, N)
    def forward(self, {names}):
        return {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
ROWS = "torch.rand(B, N)"
SEPARABLE = {
    "element-wise": ("x", "torch.tanh(x)", ROWS),
    "a norm of rows": ("x", "x / x.norm(dim=1, keepdim=True)", ROWS),
    "a linear layer": ("x", "self.linear(x)", ROWS),
    "two inputs": ("x, y", "x * y", f"{ROWS}, {ROWS}"),
    "a reduction of rows": ("x", "x.sum(1)", ROWS),
    "an index": ("x", "x.argmax(1)", ROWS),
    "several outputs": ("x", "(x + 1, x.sum(1))", ROWS),
    "a batch norm that does not train": ("x", "F.batch_norm(x, self.norm.running_mean, self.norm.running_var)", ROWS),
}
PRODUCT = ("a, b", "a @ b", "torch.rand(B, N), torch.rand(N, 3 * N)")
WHOLE = {
    "a loss": ("x, y", "F.mse_loss(x, y)", f"{ROWS}, {ROWS}"),
    "a batch norm that trains": ("x", "self.norm(x)", ROWS),
    "a norm of everything": ("x", "x / x.norm()", ROWS),
}


def task(names: str, body: str, inputs: str) -> Task:
    return Task("t", TASK.format(names=names, body=body, inputs=inputs))


def case_of(given: Task, train: bool = True, regime: str = "given", seed: int = 7) -> cases.Case:
    """A large case, whose slices have some four rows."""
    return _case(given.source, train, regime, seed)


@functools.cache
def _case(source: str, train: bool, regime: str, seed: int) -> cases.Case:
    given = Task("t", source)
    reference = Reference(given)
    cut = find_cut(reference, 0, train)
    model = reference_model.build(reference, 1, Perturbation.NONE)
    sources = structure.observe(reference, 0)
    return cases.draw(given, Plan("a case", 0, regime, train), model, seed, sources, cut)


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 4 * 2 * 40 * 4)
    monkeypatch.setattr(slices, "SAMPLE", 3 * 40 * 4)


def _widened(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


def answer(case: cases.Case, given: Task, change=lambda tensor: None, train: bool = True):
    """What an honest submission returns, computed in fp64 and rounded, then changed in place."""
    reference = Reference(given)
    model = reference_model.build(reference, 1, Perturbation.NONE).model.double().train(train)
    found = reference.forward(model, [_widened(value) for value in case.inputs])
    found = list(found) if isinstance(found, tuple) else [found]
    found = [value.float() if value.is_floating_point() else value for value in found]
    change(found[0])
    wrapped = [OutputTensor(value) for value in found]
    return wrapped if len(wrapped) > 1 else wrapped[0]


@pytest.mark.parametrize("name", SEPARABLE)
def test_tasks_whose_rows_stand_for_themselves_are_known(name: str) -> None:
    cut = find_cut(Reference(task(*SEPARABLE[name])), 0, True)
    assert cut and cut.separable


@pytest.mark.parametrize("name", WHOLE)
def test_tasks_whose_rows_do_not_are_known_too(name: str) -> None:
    cut = find_cut(Reference(task(*WHOLE[name])), 0, True)
    assert cut and not cut.separable


def test_a_product_is_cut_along_the_rows_of_its_first_factor() -> None:
    assert find_cut(Reference(task(*PRODUCT)), 0, True) == Cut((0,), True)


def test_a_task_without_a_batch_is_not_cut() -> None:
    assert find_cut(Reference(task("x", "x.view(B, N)", "torch.rand(B * N)")), 0, True) is None


@pytest.mark.parametrize("name", [*SEPARABLE, *WHOLE])
def test_honest_outputs_are_right(name: str) -> None:
    given = task(*(SEPARABLE | WHOLE)[name])
    case = case_of(given)
    assert case.large and case.check(answer(case, given)) is None


@pytest.mark.parametrize("row", range(0, 24, 5))
@pytest.mark.parametrize("name", ["element-wise", "a linear layer", "a batch norm that trains", "a norm of everything"])
def test_one_wrong_element_is_found_wherever_it_is(name: str, row: int) -> None:
    given = task(*(SEPARABLE | WHOLE)[name])
    case = case_of(given)

    def spoil(tensor: torch.Tensor) -> None:
        tensor[row, 11] += 1e-2

    assert case.check(answer(case, given, spoil)).reason == "wrong_values"


def test_a_wrong_loss_is_found() -> None:
    given = task(*WHOLE["a loss"])
    case = case_of(given)
    assert case.check(answer(case, given, lambda loss: loss.mul_(1.001))).reason == "wrong_values"


def test_lower_precision_is_found() -> None:
    given = task(*SEPARABLE["element-wise"])
    case = case_of(given)
    assert case.check(answer(case, given, lambda tensor: tensor.copy_(tensor.half()))) is not None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda value: value[:-1], "wrong_shape"),
        (lambda value: value.double(), "wrong_dtype"),
        (lambda value: value[:, :1].expand(24, 40), "wrong_values"),
        (lambda value: torch.full_like(value, float("nan")), "not_finite"),
    ],
)
def test_the_form_is_compared(change, reason: str) -> None:
    given = task(*SEPARABLE["element-wise"])
    case = case_of(given)
    right = answer(case, given)
    assert case.check(dataclasses.replace(right, value=change(right.value))).reason == reason


def test_a_reference_that_changes_its_inputs_is_right_as_well() -> None:
    given = task("x", "torch.exp_(x)", ROWS)
    case = case_of(given)
    assert case.expected.edits and case.check(answer(case, given)) is None
    left = [OutputTensor(value.exp()) for value in case.inputs]
    assert case.check_edits(left) is None
    left[0].value[7, 11] += 1e-2
    assert case.check_edits(left).reason == "wrong_values"
    assert case.check_edits([OutputTensor(value) for value in case.inputs]).reason == "wrong_values"


def test_inputs_are_drawn_anew_and_not_kept() -> None:
    case = case_of(task(*SEPARABLE["element-wise"]))
    assert case.inputs[0] is not case.inputs[0] and torch.equal(case.inputs[0], case.inputs[0])


REDUCED = {
    "a mean square": ("x, y", "((x - y) ** 2).mean()", "torch.randn(B, N), torch.randn(B, N)"),
    "a mean of positive numbers": ("x", "x.mean()", "torch.rand(B, N)"),
    "an absolute sum": ("x", "x.abs().sum()", "torch.randn(B, N)"),
    "a norm": ("x", "x.norm()", "torch.randn(B, N)"),
    "a loss of rows": ("x", "torch.logsumexp(x, 1).mean()", "torch.randn(B, N)"),
    "a norm of everything": ("x", "x / x.norm()", "torch.randn(B, N)"),
    "a loss of classes": (
        "x, y", "F.cross_entropy(x, y)", "torch.randn(B, N), torch.randint(0, N, (B,))"
    ),
}  # fmt: skip
SIZES = "B, N = 4096, 64"


@pytest.fixture
def _more_rows(monkeypatch: pytest.MonkeyPatch, _small_slices: None) -> None:
    monkeypatch.setattr(slices, "SLICE", 2**17)
    monkeypatch.setattr(slices, "SAMPLE", 2**14)


def reduced(name: str) -> Task:
    given = task(*REDUCED[name])
    return dataclasses.replace(given, source=given.source.replace("B, N = 24, 40", SIZES))


def of_most(case: cases.Case, given: Task, left_out: float, seed: int):
    """What a submission returns that takes the statistics of most rows, at fixed places, for those of all."""
    reference, inputs = Reference(given), case.inputs
    kept = torch.rand(len(inputs[0]), generator=torch.Generator().manual_seed(seed)) >= left_out
    model = reference_model.build(reference, 1, Perturbation.NONE).model
    some, share = [_widened(value[kept]) for value in inputs], kept.double().mean()
    if "x / x.norm()" in given.source:
        return OutputTensor((inputs[0] / some[0].norm() * share.sqrt()).float())
    scale = share.sqrt() if "x.norm()" in given.source else share if "x.abs()" in given.source else 1.0
    return OutputTensor((reference.forward(model, some) / scale).float())


@pytest.mark.slow
@pytest.mark.usefixtures("_more_rows")
@pytest.mark.parametrize("left_out", [1 / 16, 0.01])
@pytest.mark.parametrize("name", REDUCED)
def test_a_part_of_the_rows_does_not_stand_for_all(name: str, left_out: float) -> None:
    given = reduced(name)
    found = [case_of(given, regime="few", seed=seed) for seed in range(4)]
    assert all(found)
    missed = [case.check(of_most(case, given, left_out, seed)) is None for seed, case in enumerate(found)]
    assert sum(missed) <= (1 if left_out < 0.02 else 0)


@pytest.mark.usefixtures("_more_rows")
@pytest.mark.parametrize("regime", ["given", "few", "mixed", "sparse"])
@pytest.mark.parametrize("name", REDUCED)
def test_an_honest_reduction_is_right_on_all_values(name: str, regime: str) -> None:
    given = reduced(name)
    case = case_of(given, regime=regime)
    assert case and case.check(answer(case, given)) is None


@pytest.mark.usefixtures("_more_rows")
@pytest.mark.parametrize("regime", ["given", "few", "mixed", "sparse"])
def test_a_sum_of_blocks_one_after_the_other_is_right(regime: str) -> None:
    given = reduced("a mean square")
    case = case_of(given, regime=regime)
    x, y = case.inputs
    total = torch.zeros(())
    for block in ((x - y) ** 2).view(-1, 512).sum(1):  # as atomics add them
        total = total + block
    assert case.check(OutputTensor(total / x.numel())) is None


@pytest.mark.usefixtures("_more_rows")
def test_bounds_of_a_large_reduction_are_those_of_its_summation() -> None:
    (bounds,) = case_of(reduced("a mean square")).expected.bounds()
    assert 1e-6 < bounds.norm < 1e-4
