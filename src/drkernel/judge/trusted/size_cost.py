"""What one forward of a task costs at some sizes, with or without data."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.without_data import without_data
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
    """Whether an output has NaN, or an operator does what it does not at the published sizes: it repeats an operand, or
    has nothing to do."""
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
    return _cost_of(reference, limit, _published_forms(reference.task))


def _cost_of(reference: Reference, limit: Cost | None, usual: frozenset | None) -> Cost:
    inputs, model = reference.inputs(0), reference.model(0)
    count = lambda *trees: sum(t.numel() for tree in trees for _, t in leaves(tree) if isinstance(t, Tensor))
    weights = sum(p.numel() for p in model.parameters())
    before = Cost(count(inputs), weights, 0.0)
    if limit is not None and before.exceeds(limit):
        return before
    with _Flops() as flops, _counted_attention(), _groups() as groups, Forms() as forms:
        outputs = reference.forward(model.eval(), inputs)
    undefined = _has_nan(outputs) or (usual is not None and not forms.found <= usual)
    return Cost(
        count(inputs, outputs) + _PER_INDEX * flops.indices,
        weights,
        flops.total,
        undefined,
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
            self.total += count(*args, **(kwargs or {}), out_val=made)
        if func.overloadpacket.__name__.startswith("_embedding_bag"):
            self.indices += args[1].numel()
        return made


class Forms(TorchDispatchMode):
    """Notes what operators do with shapes: which repeat an operand along a dimension, and which make nothing.

    Sizes that become smaller may become one or none: then a width that a network divides is empty, and operands of one
    shape are no longer of one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[Any, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        for _, made in leaves(outputs):
            if isinstance(made, Tensor) and not made.numel():
                self.found.add((name,))
            elif isinstance(made, Tensor) and torch.Tag.pointwise in func.tags:
                for place, given in enumerate(value for value in args if isinstance(value, Tensor)):
                    sizes = zip(reversed(given.shape), reversed(made.shape), strict=False)
                    self.found |= {(name, place, dim) for dim, (own, whole) in enumerate(sizes) if own == 1 < whole}
        return outputs


def alike(reference: Reference) -> bool:
    """Whether operators do at these sizes what they do at the published ones; True where that cannot be told."""
    usual = _published_forms(reference.task)
    found = _forms_of(reference.task.source, reference.task.entry_point, tuple(reference.constants.items()))
    return usual is None or found is None or found <= usual


def _published_forms(task: Task) -> frozenset | None:
    """What operators do at the published sizes; None where the task does not run without data."""
    return _forms_of(task.source, task.entry_point)


@functools.lru_cache(maxsize=64)
def _forms_of(source: str, entry_point: str, constants: tuple[tuple[str, int], ...] = ()) -> frozenset | None:
    try:
        with without_data(), _counted_attention(), Forms() as forms:
            reference = Reference(Task("", source, entry_point), dict(constants))
            reference.forward(reference.model(0).eval(), reference.inputs(0))
    except Exception:
        return None
    return frozenset(forms.found)


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
    usual = _published_forms(task)
    try:
        with without_data():
            return _cost_of(Reference(task, constants), limit, usual)
    except Exception:
        return None
