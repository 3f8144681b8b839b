"""What one forward of a task costs at some sizes, with or without data."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from drkernel.judge.boundary.sequences import stands_for
from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.sizes.same_calls import Calls, Recorder, counted_attention, published_calls
from drkernel.judge.trusted.sizes.without_data import without_data
from drkernel.tasks.module import Reference
from drkernel.types import Task

_PER_INDEX = 128
"""An index of a bag counts as so many values: a program goes through its bag one by one, and bags are unlike."""
LEAST_GROUP = 8
"""A norm over fewer elements tells little, and rounding may turn its signs."""


@dataclass(frozen=True)
class Cost:
    """Of one forward of the reference."""

    values: int
    """Elements of inputs and outputs, and what goes through indices one by one."""
    weights: int
    flops: float
    undefined: bool = False
    """Whether an output has NaN, or the calls are not those at the published sizes (same_calls.py)."""
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
    return _cost_of(reference, limit, published_calls(reference.task))


def _cost_of(reference: Reference, limit: Cost | None, published: Calls | None) -> Cost:
    inputs, model = reference.inputs(0), reference.model(0)
    count = lambda *trees: sum(t.numel() for tree in trees for _, t in leaves(tree) if isinstance(t, Tensor))
    weights = sum(p.numel() for p in model.parameters())
    before = Cost(count(inputs), weights, 0.0)
    if limit is not None and before.exceeds(limit):
        return before
    with _Flops() as flops, counted_attention(), _groups() as groups, Recorder() as recorder:
        outputs = reference.forward(model.eval(), inputs)
    other = published is not None and not recorder.calls(model).are_of(published)
    return Cost(
        count(inputs, outputs) + _PER_INDEX * flops.indices,
        weights,
        flops.total,
        other or _has_nan(outputs),
        min(groups, default=math.inf),
    )


class _Flops(TorchDispatchMode):
    """Counts as torch's own counter, which hangs hooks on modules that no reference with gradients gets past."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.indices = 0
        """`indices`: of bags of embeddings."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if count := flop_registry.get(func.overloadpacket):
            self.total += stands_for() * count(*args, **(kwargs or {}), out_val=made)
        if func.overloadpacket.__name__.startswith("_embedding_bag"):
            self.indices += args[1].numel()
        return made


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


def _has_nan(outputs: Any) -> bool:
    """Whether a tensor that has data has NaN."""
    tensors = [t for _, t in leaves(outputs) if isinstance(t, Tensor) and not isinstance(t, FakeTensor)]
    return any(bool(t.isnan().any()) for t in tensors)


def planned_cost(task: Task, constants: Mapping[str, int], limit: Cost | None = None) -> Cost | None:
    """The cost without memory or arithmetic; None where the task does not run, or not without data."""
    published = published_calls(task)
    try:
        with without_data():
            return _cost_of(Reference(task, constants), limit, published)
    except Exception:
        return None
