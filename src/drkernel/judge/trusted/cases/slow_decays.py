"""Values of a reference's own parameters under which each step of an element-wise loop shows in its late outputs.

    for t in range(x.shape[1]): h = torch.sigmoid(self.decay) * h + x[:, t]

With a decay that is drawn around a half such a loop forgets within some fifty steps: who leaves out what lies further
back is right. So other inputs are drawn for the first steps. Where late outputs stay the same within rounding, some
numbers of a parameter are moved until they do not. `rounds_that_show` does so for loops that multiply with matrices.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from drkernel.judge.trusted.cases.rounds_that_show import Products
from drkernel.judge.trusted.cases.weight_perturbation import assign, share_that_differs
from drkernel.judge.trusted.outputs import is_float, leaves
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError

_STEPS, _MOST_CALLS, _MOST_PARAMETERS = 32, 2**14, 4
"""Loops of fewer steps forget little. References that call more operators, or have more parameters, take too long."""
_EARLY = 4
"""The early steps are the first of so many parts, and late outputs lie at the last of them."""
_SHOWS, _SHOWS_IN_HALF = 2.0**-10, 2.0**-5
"""By how much of their size late outputs differ where early steps show; the same of numbers of 16 bits."""
_NEAR = 2.0**-8

_MOVES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda v: v + 3, lambda v: v + 6, lambda v: v - 3, lambda v: v - 6,
    lambda v: v.sign() * (1 - _NEAR), lambda v: v.sign() * _NEAR,
)  # fmt: skip
"""What may make a decay slow: of a sigmoid, of an exponential of one, of none, and of an exponential."""


@dataclass(frozen=True)
class _Steps:
    """An input, and the dimension of it that a loop goes along."""

    place: int
    dimension: int
    number: int


def that_decay_slowly(reference: Reference, model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Other values for a parameter of a model in whose late outputs early steps do not show; nothing for others.

    Args:
        model: its weights are perturbed.
        seed: of the inputs.
    """
    if not 0 < len(own := _own(model)) <= _MOST_PARAMETERS:
        return {}
    was_training = model.training
    model.eval()
    kept = {name: weight.detach().clone() for name, weight in own.items()}
    try:
        with Products(model) as used:
            reference.forward(model, inputs := reference.inputs(seed))
        rounds = max(used.calls.values(), default=0)
        found = [steps for steps in _steps(inputs) if rounds >= steps.number]
        if not found or used.calls.total() > _MOST_CALLS:
            return {}
        candidates = {name: value for name, value in kept.items() if name not in used.numbers}
        return _slower(candidates, lambda moved: _effect(reference, model, {**kept, **moved}, seed, found[0]))
    finally:
        assign(model, kept)
        model.train(was_training)


def _slower(kept: dict[str, Tensor], effect: Callable[[dict[str, Tensor]], float]) -> dict[str, Tensor]:
    """The first values that are found under which early steps show."""
    half = any(value.element_size() < 4 for value in kept.values())
    shows = _SHOWS_IN_HALF if half else _SHOWS
    if not kept or not effect({}) < shows:
        return {}
    for name, value in kept.items():
        for move in _MOVES:
            if effect(moved := {name: _some(value, move)}) >= shows:
                return moved
    return {}


def _some(value: Tensor, move: Callable[[Tensor], Tensor]) -> Tensor:
    """Every other number moved."""
    places = torch.arange(value.numel(), device=value.device).view(value.shape) % 2 == 0
    return torch.where(places, move(value), value)


def _own(model: nn.Module) -> dict[str, Tensor]:
    """The floating parameters that a layer of PyTorch's does not have, by name."""
    theirs = [layer for layer in model.modules() if type(layer).__module__.startswith("torch.nn.")]
    known = {id(weight) for layer in theirs for weight in layer.parameters(recurse=False)}
    return {n: w for n, w in model.named_parameters() if w.is_floating_point() and id(w) not in known}


def _steps(inputs: list) -> list[_Steps]:
    """The dimensions that a loop may go along, the longest first."""
    floats = [(place, value) for place, value in enumerate(inputs) if isinstance(value, Tensor) and is_float(value)]
    found = [_Steps(place, d, size) for place, value in floats for d, size in enumerate(value.shape) if size >= _STEPS]
    return sorted(found, key=lambda steps: -steps.number)


def _effect(reference: Reference, model: nn.Module, values: dict[str, Tensor], seed: int, steps: _Steps) -> float:
    """By how much of their size late outputs differ between two draws of the early steps; NaN where they are 0 or not
    finite."""
    assign(model, values)
    given, other, early = reference.inputs(seed), reference.inputs(seed), steps.number // _EARLY
    drawn = reference.inputs(seed + 1)[steps.place].narrow(steps.dimension, 0, early)
    other[steps.place] = other[steps.place].clone()
    other[steps.place].narrow(steps.dimension, 0, early).copy_(drawn)
    with contextlib.suppress(DrKernelError):
        late = [_late(reference.forward(model, inputs), steps) for inputs in (given, other)]
        return share_that_differs(*late)
    return math.nan


def _late(outputs: Any, steps: _Steps) -> list[Tensor]:
    """The outputs of the last steps, and all where outputs have none."""
    found = []
    for _, value in leaves(outputs):
        if not isinstance(value, Tensor) or not is_float(value):
            continue
        along = [d for d in (steps.dimension, *range(value.dim())) if d < value.dim()]
        along = [d for d in along if value.shape[d] == steps.number]
        last = steps.number // _EARLY
        found.append(value.narrow(along[0], steps.number - last, last) if along else value)
    return found
