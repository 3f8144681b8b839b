"""How much larger the full-size task is than the small one that the interpreter runs.

The reference runs twice on fake tensors (no memory, no arithmetic), small and full. Operator by operator, that tells into
which size each tensor of the small run grows: an activation by one factor, a bias vector by another, a scalar by none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from drkernel.tasks.module import Reference
from drkernel.types import Task

from .ledger import Ledger, Row


@dataclass(frozen=True)
class Scale:
    """Factors from the small task to the full one; `Scale()` changes nothing."""

    bytes: float = 1.0
    """All bytes that the reference moves, full / small: for tensors of a size that the reference never touches."""
    flops: float = 1.0
    """All products of the reference, full / small."""
    numel: Mapping[int, float] = field(default_factory=dict)
    """Elements of a tensor in the small run -> factor of its size."""
    operators: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Operator and its output elements in the small run -> factor of its products."""

    def of_tensor(self, numel: int) -> float:
        return self.numel.get(numel, self.bytes if numel > 1 else 1.0)

    def of_products(self, row: Row) -> float:
        return self.operators.get((row.name, row.output_numel), self.flops)


_cache: dict[tuple, Scale] = {}


def scale_of(task: Task, small: Mapping[str, int] | None = None) -> Scale:
    """The factors between `small` (module constants; default: the task's own) and the task as written.

    Falls back to the ratio of input elements where the reference cannot run without data (data-dependent shapes), and to
    `Scale()` where not even the inputs can be described.
    """
    constants = dict(small if small is not None else task.small or {})
    key = (task.digest, tuple(sorted(constants.items())))
    if key not in _cache:
        _cache[key] = _scale(task, constants) if constants else Scale()
    return _cache[key]


def _scale(task: Task, constants: dict[str, int]) -> Scale:
    try:
        return _compared(reference_rows(task, constants), reference_rows(task, {}))
    except Exception:
        pass
    try:
        return Scale(*[_input_numel(task, {}) / _input_numel(task, constants)] * 2)
    except Exception:
        return Scale()


def reference_ledger(task: Task, constants: Mapping[str, int] | None = None) -> Ledger:
    """The operators of the reference's forward at full size (or with other constants), without running it for real."""
    return Ledger(reference_rows(task, constants or {}))


def reference_rows(task: Task, constants: Mapping[str, int]) -> list[Row]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from .aten import Recorder

    ledger = Ledger()
    reference = Reference(task, constants)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), FakeTensorMode():
        model, inputs = reference.model(0), reference.inputs(0)
        with Recorder(ledger, merge=False):
            model(*inputs)
    return ledger.rows


def _input_numel(task: Task, constants: Mapping[str, int]) -> int:
    from torch._subclasses.fake_tensor import FakeTensorMode

    reference = Reference(task, constants)
    with torch.random.fork_rng(devices=[]), FakeTensorMode():
        return sum(x.numel() for x in reference.inputs(0) if isinstance(x, torch.Tensor)) or 1


def _compared(small: list[Row], full: list[Row]) -> Scale:
    numel: dict[int, dict[float, int]] = defaultdict(lambda: defaultdict(int))
    operators: dict[tuple[str, int], float] = {}
    if [r.name for r in small] == [r.name for r in full]:
        for before, after in zip(small, full, strict=True):
            for one, other in zip(before.tensors, after.tensors, strict=False):
                if one.numel and other.numel:
                    numel[one.numel][other.numel / one.numel] += other.unique
            if before.flops and after.flops:
                operators[before.name, before.output_numel] = after.flops / before.flops
    return Scale(
        bytes=_ratio(sum(r.bytes_unique for r in full), sum(r.bytes_unique for r in small)),
        flops=_ratio(sum(r.flops for r in full), sum(r.flops for r in small)),
        numel={size: max(weights, key=lambda ratio: weights[ratio]) for size, weights in numel.items()},
        operators=operators,
    )


def _ratio(full: float, small: float) -> float:
    return full / small if full and small else 1.0
