"""The same model at other sizes: what it keeps from its first call must not depend on these.

Each hidden shape has a model of its own, which sees no other one. So the model of the published shape is asked, too,
where sizes of inputs differ that its constructor is not told: as a rule, that of the batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from drkernel.judge.trusted.outputs import all_same, leaves
from drkernel.judge.trusted.shrink import finite, shapes_of
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError


def references(
    reference: Reference, base: Reference, hidden: Sequence[Reference], seed: int, masked: bool = False
) -> list[Reference]:
    """References whose inputs the model of `reference` takes: of sizes as in each hidden shape, and of half the size,
    where it takes any of these.

    A reference that itself keeps something from a call has none.

    Args:
        base: the same at sizes that the hidden shapes are varied from.
        masked: whether outputs may be infinite.
    """
    changes = [
        {name: size for name, size in other.constants.items() if size != base.constants[name]} for other in hidden
    ]
    names = {name for change in changes for name in change}
    changes.append({name: size // 2 for name, size in base.constants.items() if name in names and size > 1})
    found = (_resized(reference, base, change, seed, masked) for change in changes)
    return [other for other in found if other]


def _resized(
    reference: Reference, base: Reference, change: Mapping[str, int], seed: int, masked: bool
) -> Reference | None:
    """With as many of these sizes as the model takes."""
    fit = {name: size for name, size in change.items() if _takes(base, {name: size}, seed, masked)}
    for sizes in (fit, dict([*fit.items()][:1])):
        if sizes and _takes(base, sizes, seed, masked):
            return Reference(reference.task, {**reference.constants, **sizes})
    return None


def _takes(base: Reference, sizes: Mapping[str, int], seed: int, masked: bool) -> bool:
    """Whether a model takes inputs of these sizes after others as it takes them first."""
    with contextlib.suppress(DrKernelError):
        other = Reference(base.task, {**base.constants, **sizes})
        usual, inputs = base.inputs(seed), other.inputs(seed)
        if shapes_of(usual) == shapes_of(inputs) or not _same(base.init_args(), other.init_args()):
            return False
        model = base.model(seed).eval()
        _forward(base, model, usual, seed)
        first, later = _forward(base, base.model(seed).eval(), inputs, seed), _forward(base, model, inputs, seed)
        return finite(first, masked) and _same(first, later)
    return False


def _forward(base: Reference, model: torch.nn.Module, inputs: list, seed: int) -> Any:
    torch.manual_seed(seed)
    return base.forward(model, [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs])


def _same(one: Any, other: Any) -> bool:
    return all_same(leaves(one), leaves(other), exactly=True)
