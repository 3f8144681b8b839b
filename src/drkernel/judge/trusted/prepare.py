"""What the examiner prepares once per task: small sizes, hidden shapes, the reference's reference_cost, and whether it is fit."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.devices.simulated.rescale import Scale, scale_of
from drkernel.judge.devices.simulated.roofline import Gpu
from drkernel.judge.trusted import attribution, cases, shrink
from drkernel.judge.trusted.cases import Case, Plan, Seeds
from drkernel.judge.trusted.tolerance import Got, leaves
from drkernel.judge.untrusted.simulated.device import record
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

T = TypeVar("T")
HIDDEN_SHAPES = 2
_TRIES = 24


@dataclass
class PreparedTask:
    """A task, ready to be set to any number of submissions."""

    task: Task
    reference: Reference
    hidden: list[Reference]
    """The same task at shapes that are published nowhere."""
    modes: list[tuple[bool, ...]]
    """See cases.modes."""
    depth: float
    reference_costs: dict[bool, attribution.ReferenceCost]
    """What the reference costs, by the first mode of each alternative in `modes`."""


class PreparedTaskCache(Generic[T]):
    """Papers by task, the `size` that were asked for last; of an unusable task, what is wrong with it."""

    def __init__(self, size: int):
        self._size, self._found = size, OrderedDict[str, T | str]()

    def __contains__(self, task: Task) -> bool:
        return task.digest in self._found

    def get(self, task: Task, write: Callable[[], T]) -> T:
        """A prepared task, which `write` makes where it is not there.

        Raises:
            DrKernelError: the task is unusable.
        """
        if task not in self:
            try:
                self._found[task.digest] = write()
            except DrKernelError as error:
                self._found[task.digest] = str(error)  # the error itself would keep all its tensors
            if len(self._found) > self._size:
                self._found.popitem(last=False)
        self._found.move_to_end(task.digest)
        found = self._found[task.digest]
        if isinstance(found, str):
            raise DrKernelError(found)
        return found


def write(task: Task, secret: bytes, gpu: Gpu) -> PreparedTask:
    """Prepares a task for the simulated device, at small sizes.

    Raises:
        DrKernelError: the reference fails, is too large to shrink, or a trivial answer would pass for right.
    """
    task = shrink.fit(task)
    reference = Reference(task, task.small)
    return prepare(reference, reference, secret, gpu, scale_of(task), record)


def prepare(
    reference: Reference,
    base: Reference,
    secret: bytes,
    gpu: Gpu,
    scale: Scale,
    record: Callable[[], AbstractContextManager[OpTrace]],
) -> PreparedTask:
    """Prepares a task.

    Args:
        reference: what submissions are compared with.
        base: the same, at sizes that the hidden shapes are varied from.
        scale: from the reference's sizes to those that count.
        record: counts the operators of a block.
    """
    task = reference.task
    seeds = Seeds(secret, task.digest)
    seed = seeds("paper")  # a name that stays, since hidden inputs derive from it
    modes = cases.modes(reference, seed)
    reference_costs = {train: _reference_cost(reference, seed, train, scale, gpu, record) for train, *_ in modes}
    hidden = list(itertools.islice(_hidden(task, base, seeds), HIDDEN_SHAPES))
    depth = max(cases.depth_of(reference_cost.trace) for reference_cost in reference_costs.values())
    prepared = PreparedTask(task, reference, hidden, modes, depth, reference_costs)
    _refuse_degenerate(prepared, seeds)
    return prepared


def _reference_cost(
    reference: Reference, seed: int, train: bool, scale: Scale, gpu: Gpu, record: Callable
) -> attribution.ReferenceCost:
    model, inputs = reference.model(seed).train(train), reference.inputs(seed)
    with record() as trace:
        outputs = reference.forward(model, inputs)
    tensors = [t for _, t in leaves(inputs) if isinstance(t, Tensor)]
    sizes = [(t.numel(), t.numel() * t.element_size()) for t in tensors]
    written = sum(t.numel() * t.element_size() for _, t in leaves(outputs) if isinstance(t, Tensor))
    return attribution.reference_cost(trace, scale, gpu, attribution.input_bytes(trace, sizes), written)


def _hidden(task: Task, reference: Reference, seeds: Seeds) -> Iterator[Reference]:
    """References at other sizes that run, stay finite and are not much larger."""
    seed = seeds("shapes")
    inputs = reference.inputs(seed)
    seen = {shrink.shapes_of(inputs)}
    limit = 4 * _elements(inputs) + 4096
    names = [name for name in reference.constants if _sizes_inputs(task, reference, name, seed)]
    for constants in itertools.islice(shrink.hidden_shapes(reference.constants, names, seed), _TRIES):
        try:
            other = Reference(task, constants)
            inputs = other.inputs(seed)
            shapes = shrink.shapes_of(inputs)
            if shapes in seen or _elements(inputs) > limit:
                continue
            if shrink.finite(other.forward(other.model(seed).eval(), inputs)):
                seen.add(shapes)
                yield other
        except DrKernelError:
            continue


def _sizes_inputs(task: Task, reference: Reference, name: str, seed: int) -> bool:
    """Whether a constant alone changes the shape of an input (a kernel size or a number of groups does not)."""
    try:
        other = Reference(task, {**reference.constants, name: reference.constants[name] + 1})
        return shrink.shapes_of(other.inputs(seed)) != shrink.shapes_of(reference.inputs(seed))
    except DrKernelError:
        return False


def _elements(inputs: list) -> int:
    return sum(t.numel() for _, t in leaves(inputs) if isinstance(t, Tensor))


def _refuse_degenerate(prepared: PreparedTask, seeds: Seeds) -> None:
    """DrKernelError if an answer that does no work is (nearly) right in every case. Source: judging.md 3.2.7."""
    side = cases.side(prepared.reference, seeds("degenerate"), perturb=True)
    train = prepared.modes[-1][0]
    first, alive = None, {}
    for index, regime in enumerate(("given", *cases.PURE)):
        plan = Plan(regime, 0, regime, train)
        case = cases.draw(prepared.task, plan, side, seeds("degenerate", index), prepared.depth)
        if case and first is None:
            first, alive = case, _trivial(case)
            _expect_finite(prepared.task, case)
        if case:
            alive = {name: predict for name, predict in alive.items() if _passes(case, predict)}
        if not alive:
            return
    raise DrKernelError(f"task {prepared.task.id}: degenerate: {next(iter(alive))} would pass for a right answer")


def _expect_finite(task: Task, case: Case) -> None:
    if not shrink.finite(case.inputs):
        raise DrKernelError(f"task {task.id}: its inputs are not finite")
    if not case.expected.usable:
        raise DrKernelError(f"task {task.id}: the reference's output has NaN or infinities that depend on rounding")


def _trivial(first: Case) -> dict[str, Any]:
    """Answers that do no work, by what they are: functions of a case and an output of it, None where they have none."""
    answer = first.expected.rounded
    constants = {t.shape: float(t.double().mean()) for _, t in leaves(answer) if isinstance(t, Tensor)}
    predictors: dict[str, Any] = {
        "an output of zeros": lambda case, leaf: torch.zeros_like(leaf),
        "a constant": lambda case, leaf: (
            torch.full_like(leaf, constants[leaf.shape]) if leaf.shape in constants else None
        ),
    }
    if isinstance(answer, Tensor):
        predictors["an earlier output"] = lambda case, leaf: leaf if case is first else answer
    for index in range(sum(isinstance(value, Tensor) for value in first.inputs)):
        predictors[f"input {index} unchanged"] = lambda case, leaf, index=index: _input(case, leaf, index)
    return predictors


def _input(case: Case, leaf: Tensor, index: int) -> Tensor | None:
    value = [value for value in case.inputs if isinstance(value, Tensor)][index]
    return value.to(leaf.dtype) if value.shape == leaf.shape else None


def _passes(case: Case, predict: Any) -> bool:
    """Whether a predictor comes within ten times the tolerance on every output of a case."""
    return case.expected.check(_guess(case, predict, case.expected.rounded), tolerance=10.0) is None


def _guess(case: Case, predict: Any, tree: Any) -> Any:
    if isinstance(tree, (list, tuple)):
        return [_guess(case, predict, part) for part in tree]
    if isinstance(tree, dict):
        return {key: _guess(case, predict, part) for key, part in tree.items()}
    value = predict(case, tree) if isinstance(tree, Tensor) else tree
    return Got(value) if isinstance(value, Tensor) else value
