"""Smaller sizes for a task, so that an interpreter can run it, and odd ones that nobody published.

KernelBench keeps sizes in module constants; literals inside `get_inputs` and `get_init_inputs` are lifted into
constants first. Sizes are halved until the task is cheap, which keeps most divisibility that a task relies on.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from drkernel.judge.compare import leaves
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

MAX_ELEMENTS = 2**16
"""Elements of all inputs, weights and outputs together that a shrunk task may have."""
MAX_FLOPS = 2e7
_CAPS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)


def fit(task: Task) -> Task:
    """The task with `small` set: as given, or the largest halving of its constants that is cheap and runs.

    Raises:
        DrKernelError: nothing that is small enough runs; the message says what the smallest attempt met.
    """
    if task.small is not None:
        return task
    lifted = dataclasses.replace(task, source=lift(task.source))
    constants = Reference(lifted).constants
    best: dict[str, int] | None = None
    problem = f"they come to more than {MAX_ELEMENTS} elements"
    for cap in _CAPS:
        small = {name: halved(value, cap) for name, value in constants.items()}
        try:
            elements, flops = _cost(Reference(lifted, small))
        except DrKernelError as error:
            problem = str(error)
            continue
        if elements > MAX_ELEMENTS or flops > MAX_FLOPS:
            break
        best = small
    if best is None:
        raise DrKernelError(f"task {task.id}: its sizes cannot be shrunk for the simulated device: {problem}")
    changed = {name: value for name, value in best.items() if value != constants[name]}
    return dataclasses.replace(lifted, small=changed)


def halved(value: int, cap: int) -> int:
    """The largest value / 2^k that is at most cap; an odd value beyond it becomes the cap itself."""
    while value > cap:
        value = value // 2 if value % 2 == 0 else cap
    return value


def _cost(reference: Reference) -> tuple[int, float]:
    """Elements of inputs, weights and outputs, and the floating-point operations of one forward."""
    inputs, model = reference.inputs(0), reference.model(0)
    with FlopCounterMode(display=False) as counter:
        outputs = reference.forward(model.eval(), inputs)
    tensors = [t for _, t in (*leaves(inputs), *leaves(outputs)) if isinstance(t, Tensor)]
    return sum(t.numel() for t in (*tensors, *model.parameters())), counter.get_total_flops()


def hidden_shapes(before: Mapping[str, int], names: Sequence[str], offset: int) -> Iterator[dict[str, int]]:
    """Other values of the constants that size the inputs, most telling first; the caller tries which of them run.

    Args:
        before: all constants at their small values.
        names: those that size an input.
        offset: a secret number; rotates the order of equally good candidates.
    """
    names = [name for name in names if before[name] >= 3]
    names = names[offset % len(names) :] + names[: offset % len(names)] if names else []
    odd = {name: before[name] + 1 for name in names}
    less = {name: max(2, before[name] - 3) for name in names}
    part = {name: max(2, 3 * before[name] // 4) for name in names}
    tried = [odd, less, {**odd, **{n: less[n] for n in names[::2]}}, part]
    tried += [{name: change[name]} for change, name in itertools.product((odd, less, part), reversed(names))]
    tried += [{name: 2 * before[name]} for name in reversed(names)]
    for change in tried:
        yield {**before, **change}


def lift(source: str) -> str:
    """The source with sizes that are literals as module constants; unchanged where there are none.

    Int literals of at least 16 count, in `get_inputs`, `get_init_inputs` and in tuples like `input_shape = (32768,)`.
    Equal literals share a constant, since they usually are the same size.
    """
    tree = ast.parse(source)
    names: dict[int, str] = {}

    class Lift(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.expr:
            if type(node.value) is not int or node.value < 16:
                return node
            return ast.copy_location(ast.Name(names.setdefault(node.value, f"SIZE_{node.value}"), ast.Load()), node)

    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            Lift().generic_visit(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if isinstance(node.value, (ast.Tuple, ast.List)):
                Lift().generic_visit(node.value)
    if not names:
        return source
    start = sum(isinstance(node, (ast.Expr, ast.ImportFrom)) and _leads(node) for node in tree.body)
    tree.body[start:start] = ast.parse("\n".join(f"{name} = {value}" for value, name in names.items())).body
    return ast.unparse(tree) + "\n"


def _leads(node: ast.stmt) -> bool:
    """Whether a statement must stay first: the docstring and __future__ imports."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def shapes_of(inputs: list) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(t.shape) for _, t in leaves(inputs) if isinstance(t, Tensor))


def finite(tree: Any) -> bool:
    return all(bool(torch.isfinite(t).all()) for _, t in leaves(tree) if isinstance(t, Tensor) and t.is_floating_point())
