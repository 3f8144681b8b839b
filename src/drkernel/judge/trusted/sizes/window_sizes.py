"""Constants of a task that are no sizes of data: those that say how wide the windows of convolutions and pools are.

A kernel for windows of 11 places is no less general for that, so a small task keeps them.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.sizes.without_data import without_data
from drkernel.tasks.module import Reference, int_constants
from drkernel.tasks.sources import replaced
from drkernel.types import Task

LEAST, LARGEST = 4, 16
"""No halving makes narrower ones smaller where a task has other sizes, too; wider ones take an interpreter too long."""
_POOLS = ("max_pool", "avg_pool")
Shapes = list[tuple[int, ...]]


def with_fixed_windows(task: Task) -> Task:
    """The task where such constants are numbers that nobody finds: `kernel_size = int("11")`."""
    names = windows(Reference(task))
    nodes = [node for name, found in int_constants(ast.parse(task.source)).items() if name in names for node in found]
    hidden: dict[ast.expr, str] = {node: f'int("{node.value!r}")' for node in nodes}
    return dataclasses.replace(task, source=replaced(task.source, hidden)) if nodes else task


def windows(reference: Reference) -> frozenset[str]:
    """The names of these constants; none where the task does not run without data."""
    asked = [name for name, value in reference.constants.items() if LEAST < value <= LARGEST]
    before, inputs = (_windows(reference, {}), _inputs(reference, {})) if asked else ([], [])
    return frozenset(name for name in asked if before and _widens(reference, name, before, inputs))


def _widens(reference: Reference, name: str, before: Shapes, inputs: Shapes) -> bool:
    """Whether another value makes a window wider or narrower, and no input."""
    values = (reference.constants[name] + step for step in (-1, 1))
    others = [{name: value} for value in values if _inputs(reference, {name: value}) == inputs]
    return any((after := _windows(reference, other)) and after != before for other in others)


def _inputs(reference: Reference, changed: Mapping[str, int]) -> Shapes:
    with contextlib.suppress(Exception), without_data():
        given = _other(reference, changed).inputs(0)
        return [tuple(tensor.shape) for _, tensor in leaves(given) if isinstance(tensor, Tensor)]
    return []


def _windows(reference: Reference, changed: Mapping[str, int]) -> Shapes:
    """The windows of a forward, in order; none where it does not run with these constants."""
    mode = _Windows()
    with contextlib.suppress(Exception), without_data():
        other = _other(reference, changed)
        model, inputs = other.model(0), other.inputs(0)
        with mode:
            model(*inputs)
        return mode.found
    return []


def _other(reference: Reference, changed: Mapping[str, int]) -> Reference:
    return Reference(reference.task, {**reference.constants, **changed})


class _Windows(TorchDispatchMode):
    """The windows of convolutions and pools."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Shapes = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        name = func._overloadpacket.__name__
        if name == "convolution":
            self.found.append(tuple(args[1].shape[2:]))
        elif name.startswith(_POOLS):
            self.found.append(tuple(args[1]))
        return func(*args, **(kwargs or {}))
