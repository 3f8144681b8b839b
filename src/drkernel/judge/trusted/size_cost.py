"""What one forward of a task costs at some sizes, with or without data."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils.flop_counter import FlopCounterMode

from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.without_data import without_data
from drkernel.tasks.module import Reference
from drkernel.types import Task

LEAST_GROUP = 8
"""A norm over fewer elements tells little, and rounding may turn its signs."""


@dataclass(frozen=True)
class Cost:
    """Of one forward of the reference."""

    values: int
    """Elements of inputs and outputs."""
    weights: int
    flops: float
    undefined: bool = False
    """Whether an output has NaN."""
    group: float = math.inf
    """The least number of elements that a norm divides by the deviation of."""

    def exceeds(self, limit: Cost) -> bool:
        return self.values > limit.values or self.weights > limit.weights or self.flops > limit.flops

    def helps(self, before: Cost, limit: Cost) -> bool:
        """Whether it is less of something that exceeds a limit."""
        return (
            self.values < before.values > limit.values
            or self.weights < before.weights > limit.weights
            or self.flops < before.flops > limit.flops
        )


def cost_of(reference: Reference, limit: Cost | None = None) -> Cost:
    """What one forward costs; of what exceeds a limit before the forward, only inputs and weights."""
    inputs, model = reference.inputs(0), reference.model(0)
    count = lambda *trees: sum(t.numel() for tree in trees for _, t in leaves(tree) if isinstance(t, Tensor))
    weights = sum(p.numel() for p in model.parameters())
    before = Cost(count(inputs), weights, 0.0)
    if limit is not None and before.exceeds(limit):
        return before
    for _, given in leaves([*model.parameters(), inputs]):  # what a module is given: the counter asks for its gradient
        if isinstance(given, Tensor) and given.is_leaf:
            given.requires_grad_(False)
    with FlopCounterMode(display=False) as counter, _counted_attention(), _groups() as groups:
        outputs = reference.forward(model.eval(), inputs)
    return Cost(
        count(inputs, outputs), weights, counter.get_total_flops(), _has_nan(outputs), min(groups, default=math.inf)
    )


@contextlib.contextmanager
def _groups() -> Iterator[list[float]]:
    """How many elements the norms of this block's modules have in a group: a channel of all images, or of one."""
    found: list[float] = []

    def note(module: nn.Module, args: tuple) -> None:
        if isinstance(module, _NormBase) and args:
            rows = 1 if isinstance(module, _BatchNorm) else len(args[0])
            found.append(args[0].numel() / (rows * args[0].shape[1]))
        elif isinstance(module, nn.GroupNorm) and args:
            found.append(args[0].numel() / (len(args[0]) * module.num_groups))

    handle = nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield found
    finally:
        handle.remove()


@contextlib.contextmanager
def _counted_attention() -> Iterator[None]:
    """nn.TransformerEncoderLayer and its like run as operators that are counted, not as one."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _has_nan(outputs: Any) -> bool:
    """Whether a tensor that has data has NaN."""
    tensors = [t for _, t in leaves(outputs) if isinstance(t, Tensor) and not isinstance(t, FakeTensor)]
    return any(bool(t.isnan().any()) for t in tensors)


def planned_cost(task: Task, constants: Mapping[str, int], limit: Cost | None = None) -> Cost | None:
    """The cost without memory or arithmetic; None where the task does not run, or not without data."""
    try:
        with without_data():
            return cost_of(Reference(task, constants), limit)
    except Exception:
        return None
