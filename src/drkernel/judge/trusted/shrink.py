"""Smaller sizes for a task, so that an interpreter can run it, and odd ones that nobody published.

KernelBench keeps sizes in module constants. Literals inside `get_inputs` and `get_init_inputs` are first lifted into
constants, too. Sizes are halved until the task is cheap, which keeps most divisibility that a task relies on.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from drkernel.judge.boundary.aten import Recorder
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.trusted.outputs import leaves
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

_CAPS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Largest values of a constant that are tried, in turn."""
_MIN_SIZE = 16
"""Smaller literals are taken for something else than sizes. Rows keep as many elements, where it is cheap."""
_SMALLEST_CAPS = (8, 4, 2)


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one forward of the reference."""

    values: int
    """Elements of inputs and outputs."""
    weights: int
    flops: float

    def exceeds(self, limit: Cost) -> bool:
        return self.values > limit.values or self.weights > limit.weights or self.flops > limit.flops


CHEAP = Cost(2**16, 2**16, 2e7)
"""What a task is shrunk to if its constants allow it."""
MOST = Cost(2**20, 2**23, 2e9)
"""What is accepted where they allow no less (sizes inside the model)."""


def fit(task: Task, target: Cost = CHEAP, limit: Cost = MOST) -> Task:
    """The task with `small` set: as given, or the largest halving of its constants that is cheap and runs.

    Args:
        target: what is small enough.
        limit: what is accepted where the constants allow no less.

    Raises:
        DrKernelError: nothing that is small enough runs; the message says what the smallest attempt met.
    """
    if task.small is not None:
        return task
    Reference(task)
    lifted = dataclasses.replace(task, source=lift(task.source))
    constants = Reference(lifted).constants
    best: dict[str, int] | None = None
    problem = "nothing small enough runs"
    for cap in _CAPS:
        small = {name: halved(value, cap) for name, value in constants.items()}
        try:
            cost = _cost(Reference(lifted, small))
        except DrKernelError as error:
            problem = str(error)
            continue
        if cost.exceeds(target) and (best is not None or cost.exceeds(limit)):
            problem = f"it still has {cost.values} values, {cost.weights} weights and {cost.flops:.3g} operations"
            break
        best = small
        if cost.exceeds(target):
            break
    if best is None:
        raise DrKernelError(f"task {task.id}: its sizes cannot be shrunk for the simulated device: {problem}")
    best = _with_wide_rows(lifted, constants, best, target)
    changed = {name: value for name, value in best.items() if value != constants[name]}
    return dataclasses.replace(lifted, small=changed)


def _with_wide_rows(task: Task, constants: dict[str, int], small: dict[str, int], target: Cost) -> dict[str, int]:
    """Other small sizes, whose rows have the _MIN_SIZE elements that kernels with tl.dot expect, where that is cheap.

    The other sizes become smaller instead.
    """
    widths = {name: _widened(small[name], constants[name]) for name in small if _sizes_rows(task, small, name)}
    if all(value == small[name] for name, value in widths.items()) or not _multiplies(Reference(task, small)):
        return small
    for cap in _SMALLEST_CAPS:
        others = {name: halved(value, min(cap, small[name])) for name, value in constants.items()}
        with contextlib.suppress(DrKernelError):
            wide = Reference(task, others | widths)
            before, after = _distinct_sizes(Reference(task, small)), _distinct_sizes(wide)
            fewer = any(now < then for then, now in zip(before, after, strict=True))
            if not fewer and not _cost(wide).exceeds(target):
                return others | widths
    return small


def _distinct_sizes(reference: Reference) -> list[int]:
    """How many sizes each input has: equal ones would hide a kernel that takes rows for columns."""
    return [len(set(shape)) for shape in shapes_of(reference.inputs(0))]


def _multiplies(reference: Reference) -> bool:
    """Whether the reference has products of matrices: attention too, which torch does not count on a CPU."""
    recorder = Recorder(OpTrace())
    inputs, model = reference.inputs(0), reference.model(0)
    with recorder:
        reference.forward(model.eval(), inputs)
    return any(row.flops for row in recorder.trace.rows)


def _widened(small: int, full: int) -> int:
    while small < _MIN_SIZE and 2 * small <= full:
        small *= 2
    return small


def _sizes_rows(task: Task, small: dict[str, int], name: str) -> bool:
    """Whether a constant sizes the last dimension of an input."""
    last = lambda constants: [shape[-1:] for shape in shapes_of(Reference(task, constants).inputs(0))]
    try:
        return small[name] < _MIN_SIZE and last(small) != last({**small, name: 2 * small[name]})
    except DrKernelError:
        return False


def halved(value: int, cap: int) -> int:
    """The largest value / 2^k that is at most cap; an odd value beyond it becomes the cap itself."""
    while value > cap:
        value = value // 2 if value % 2 == 0 else cap
    return value


def _cost(reference: Reference) -> Cost:
    inputs, model = reference.inputs(0), reference.model(0)
    with FlopCounterMode(display=False) as counter:
        outputs = reference.forward(model.eval(), inputs)
    values = sum(t.numel() for _, t in (*leaves(inputs), *leaves(outputs)) if isinstance(t, Tensor))
    return Cost(values, sum(p.numel() for p in model.parameters()), counter.get_total_flops())


def hidden_shapes(before: Mapping[str, int], names: Sequence[str], offset: int) -> Iterator[dict[str, int]]:
    """Other values of the constants that size the inputs, most telling first; the caller tries which of them run.

    Args:
        before: all constants at their small values.
        names: those that size an input.
        offset: a secret number; rotates the order of equally good names.
    """
    names = [name for name in names if before[name] >= 3]
    names = names[offset % len(names) :] + names[: offset % len(names)] if names else []
    odd = {name: before[name] + 1 for name in names}
    less = {name: max(2, before[name] - 3) for name in names}
    smaller = {name: max(2, 3 * before[name] // 4) for name in names}
    tried = [odd, less, {**odd, **{n: less[n] for n in names[::2]}}, smaller]
    tried += [{name: change[name]} for change, name in itertools.product((odd, less, smaller), reversed(names))]
    tried += [{name: 2 * before[name]} for name in reversed(names)]
    for change in tried:
        yield {**before, **change}


def lift(source: str) -> str:
    """The source, line by line, with sizes that are literals as module constants; unchanged where there are none.

    Int literals of at least 16 count, in `get_inputs`, `get_init_inputs` and in tuples like `input_shape = (32768,)`.
    Equal literals share a constant, since they usually are the same size.
    """
    body = ast.parse(source).body
    literals = [
        node
        for statement in body
        if _holds_sizes(statement)
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= _MIN_SIZE
    ]
    if not literals:
        return source
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    for node in sorted(literals, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[: node.col_offset] + _name(node.value).encode() + line[node.end_col_offset :]
    first = next(node for node in body if not _must_stay_first(node))
    constants = "".join(f"{_name(value)} = {value!r}; " for value in dict.fromkeys(node.value for node in literals))
    if isinstance(first, (ast.FunctionDef, ast.ClassDef, ast.If)):
        constants += "\n"
    lines[first.lineno - 1] = constants.encode() + lines[first.lineno - 1]
    return b"".join(lines).decode()


def _name(size: Any) -> str:
    return f"SIZE_{size}"


def _holds_sizes(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in ("get_inputs", "get_init_inputs")
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and isinstance(node.value, (ast.Tuple, ast.List))
    return False


def _must_stay_first(node: ast.stmt) -> bool:
    """Whether a statement must stay first: the docstring and __future__ imports."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def shapes_of(inputs: list) -> tuple[tuple[int, ...], ...]:
    """The shapes of all tensors among the inputs."""
    return tuple(tuple(t.shape) for _, t in leaves(inputs) if isinstance(t, Tensor))


def finite(tree: Any) -> bool:
    """Whether no floating tensor of a tree has a NaN or an infinity."""
    return all(
        bool(torch.isfinite(t).all()) for _, t in leaves(tree) if isinstance(t, Tensor) and t.is_floating_point()
    )
