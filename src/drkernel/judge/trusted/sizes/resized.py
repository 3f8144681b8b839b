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
from drkernel.judge.trusted.sizes.same_calls import are_same
from drkernel.judge.trusted.sizes.shrink import finite, shapes_of
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
    kept = _Kept(base, seed, masked)
    found = (_resized(reference, kept, change) for change in changes)
    return [other for other in found if other]


def _resized(reference: Reference, kept: _Kept, change: Mapping[str, int]) -> Reference | None:
    """With as many of these sizes as the model takes."""
    untold = {name: size for name, size in change.items() if kept.is_told_nothing_of({name: size})}
    sizes = untold if kept.takes(untold) else {n: size for n, size in untold.items() if kept.takes({n: size})}
    for chosen in (sizes, dict([*sizes.items()][:1])):
        if chosen and (chosen is untold or kept.takes(chosen)):
            return Reference(reference.task, {**reference.constants, **chosen})
    return None


class _Kept:
    """A model that was called at the usual sizes before.

    Args:
        base, seed, masked: as those of `references`.
    """

    def __init__(self, base: Reference, seed: int, masked: bool):
        self._base, self._seed, self._masked = base, seed, masked
        self._model: torch.nn.Module | None = None
        self._loops = are_same(base)
        """Whether loops must go round as often. Who unrolls one is wrong at `base` where it goes round less often."""

    def is_told_nothing_of(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes are those of inputs, and not of what the constructor is given."""
        with contextlib.suppress(DrKernelError):
            other = self._with(sizes)
            shapes = (shapes_of(reference.inputs(self._seed)) for reference in (self._base, other))
            return len({*shapes}) > 1 and _same(self._base.init_args(), other.init_args())
        return False

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Whether it gives at these sizes what a new model gives, by the calls that it makes at the published ones."""
        if not sizes:
            return False
        with contextlib.suppress(DrKernelError):
            inputs = self._with(sizes).inputs(self._seed)
            if self._model is None:
                model = self._base.model(self._seed).eval()
                self._run(model, self._base.inputs(self._seed))
                self._model = model
            first = self._run(self._base.model(self._seed).eval(), inputs)
            kept = finite(first, self._masked) and _same(first, self._run(self._model, inputs))
            return kept and are_same(self._with(sizes), self._loops)
        return False

    def _with(self, sizes: Mapping[str, int]) -> Reference:
        return Reference(self._base.task, {**self._base.constants, **sizes})

    def _run(self, model: torch.nn.Module, inputs: list) -> Any:
        torch.manual_seed(self._seed)
        return self._base.forward(model, [v.clone() if isinstance(v, torch.Tensor) else v for v in inputs])


def _same(one: Any, other: Any) -> bool:
    return all_same(leaves(one), leaves(other), exactly=True)
