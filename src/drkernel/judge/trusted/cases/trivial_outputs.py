"""Which outputs that take no work would pass for right: zeros, a constant, an earlier output, an input."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.trusted.cases import cases, reference_model, regimes
from drkernel.judge.trusted.cases.cases import Case, Seeds
from drkernel.judge.trusted.cases.plans import DEFAULT_WEIGHTS, Plan
from drkernel.judge.trusted.cases.reference_model import Perturbation
from drkernel.judge.trusted.cases.structure import Source
from drkernel.judge.trusted.comparison.tolerance import Expected
from drkernel.judge.trusted.outputs import as_output, leaves
from drkernel.judge.trusted.sizes import shrink
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

_SLACK = 10.0
"""A trivial output counts as right within so many times the tolerance."""

Predictor = Callable[[Case, Tensor], Tensor | None]
"""A trivial output in place of one output tensor of a case; None where there is none of that kind."""


def doubt(
    reference: Reference,
    sources: Sequence[Source],
    train: bool,
    seeds: Seeds,
    weights: int,
    pause: Callable[[], object],
) -> tuple[str, bool]:
    """Why a task might not tell right from wrong in a mode.

    Args:
        sources: see `structure.observe`.
        weights: the seed of the model.
        pause: called now and then, while others may have the device.

    Returns:
        In words, the outputs that take no work and are (nearly) right in every case, or an empty text; and whether
        rounding alone changes the outputs to given inputs so much that a comparison says little.

    Raises:
        DrKernelError: inputs are not finite, or where outputs are not depends on rounding.
    """
    task = reference.task
    model = reference_model.build(reference, weights, Perturbation.OVERWRITE)
    first, passing, vague = None, {}, False
    for index, regime in enumerate(("given", "given", *regimes.PURE)):  # twice: no other regime may suit the task
        plan = Plan(regime, DEFAULT_WEIGHTS, regime, train)  # not a timed one: only those need patterns of precision
        case = cases.draw(task, plan, model, seeds("degenerate", index), sources)
        if case and first is None:
            first, passing = case, _trivial(case)
            _expect_finite(task, case)
        if case:
            passing = {name: predict for name, predict in passing.items() if _passes(case, predict)}
            vague = vague or not case.expected.well_conditioned
        if not passing:
            return "", vague
        pause()
    return f"{next(iter(passing))} would pass for a right answer", vague


def _expect_finite(task: Task, case: Case) -> None:
    if not shrink.finite(case.inputs):
        raise DrKernelError(f"task {task.id}: its inputs are not finite")
    if isinstance(case.expected, Expected) and not case.expected.same_nonfinite:
        raise DrKernelError(f"task {task.id}: the reference's output has NaN or infinities that depend on rounding")


def _trivial(first: Case) -> dict[str, Predictor]:
    """Outputs that take no work, by what they are."""
    expected = first.expected.rounded
    constants = {t.shape: float(t.double().mean()) for _, t in leaves(expected) if isinstance(t, Tensor)}
    predictors: dict[str, Predictor] = {
        "an output of zeros": lambda case, leaf: torch.zeros_like(leaf),
        "a constant": lambda case, leaf: (
            torch.full_like(leaf, constants[leaf.shape]) if leaf.shape in constants else None
        ),
    }
    if isinstance(expected, Tensor):
        predictors["an earlier output"] = lambda case, leaf: leaf if case is first else expected
    for index in range(sum(isinstance(value, Tensor) for value in first.inputs)):
        predictors[f"input {index} unchanged"] = functools.partial(_input, index)
    return predictors


def _input(index: int, case: Case, leaf: Tensor) -> Tensor | None:
    value = [value for value in case.inputs if isinstance(value, Tensor)][index]
    return value.to(leaf.dtype) if value.shape == leaf.shape else None


def _passes(case: Case, predict: Predictor) -> bool:
    """Whether trivial outputs come near enough to every output of a case."""
    return case.expected.check(_predicted(case, predict, case.expected.rounded), _SLACK) is None


def _predicted(case: Case, predict: Predictor, tree: Any) -> Any:
    if isinstance(tree, (list, tuple)):
        return [_predicted(case, predict, part) for part in tree]
    if isinstance(tree, dict):
        return {key: _predicted(case, predict, part) for key, part in tree.items()}
    return as_output(predict(case, tree) if isinstance(tree, Tensor) else tree)
