"""Large calls, compared slice by slice, so that the judge needs little memory beside the call's inputs and outputs.

What takes a call's tolerance to find (fp64, runs with noise, products of lower precision) is done on some rows of the
batch, at a secret place. There the outputs are compared as those of small calls are. Everywhere they are compared with
the reference's own outputs, which are computed some rows at a time, within bounds that those rows have given.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.trusted.block_tolerance import Tolerance
from drkernel.judge.trusted.mismatch import Mismatch
from drkernel.judge.trusted.outputs import OutputTensor, form_of, kind_of, leaves, shape_of
from drkernel.judge.trusted.tolerance import Bounds, Expected
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError

LARGE = 2**28
"""Bytes of a call's inputs, outputs and weights from which it is compared slice by slice."""
SLICE, SAMPLE = 2**28, 2**25
"""Bytes of inputs and outputs that are looked at together: in the task's precision, and in fp64."""
_ROUNDED, _ANOTHER_SIZE = 1.5, 3.0
"""By how much bounds grow: the reference's own outputs stand for the exact ones, and, where the outputs of a batch are
not those of its rows, bounds come from another computation."""
_RTOL, _ATOL = 1e-3, 1e-4

Forward = Callable[[list], Any]
"""The reference's outputs on inputs."""


@dataclass(frozen=True)
class Cut:
    """How a task's inputs are cut along the batch, the first dimension of some of them."""

    arguments: tuple[int, ...]
    """Which inputs are cut."""
    separable: bool
    """Whether the outputs of some rows are those rows of all outputs. A loss and a batch norm have no such outputs."""

    def rows(self, inputs: Sequence[Any]) -> int:
        return len(inputs[self.arguments[0]])

    def part(self, inputs: Sequence[Any], rows: slice) -> list:
        """The inputs with some rows of the batch; views."""
        return [value[rows] if index in self.arguments else value for index, value in enumerate(inputs)]


def find_cut(reference: Reference, seed: int, train: bool) -> Cut | None:
    """How the inputs of a task can be cut; None where it runs on whole batches alone.

    Args:
        reference: at sizes that are cheap. Which inputs share the batch does not depend on them.
    """
    inputs = reference.inputs(seed)
    tensors = [i for i, value in enumerate(inputs) if isinstance(value, Tensor) and value.dim() and len(value) > 1]
    if not tensors:
        return None
    together = tuple(i for i in tensors if len(inputs[i]) == len(inputs[tensors[0]]))
    found = None
    for arguments in dict.fromkeys((together, together[:1])):
        separable = _separable(reference, Cut(arguments, False), inputs, seed, train)
        if separable:
            return Cut(arguments, True)
        if separable is not None and found is None:
            found = Cut(arguments, False)
    return found


def _separable(reference: Reference, cut: Cut, inputs: list, seed: int, train: bool) -> bool | None:
    """Whether the outputs of a part of the batch are that part of the outputs; None where a part alone fails."""
    model, rows = reference.model(seed).train(train), cut.rows(inputs)
    part = slice(rows // 2, rows)

    def forward(values: list) -> list[tuple[str, Any]]:
        torch.manual_seed(seed)
        copies = [value.clone() if isinstance(value, Tensor) else value for value in values]
        return leaves(reference.forward(model, copies))

    whole = forward(inputs)
    try:
        some = forward(cut.part(inputs, part))
    except DrKernelError:
        return None
    if [path for path, _ in whole] != [path for path, _ in some]:
        return None
    return all(_is_part(value, of, part, rows) for (_, value), (_, of) in zip(some, whole, strict=True))


def _is_part(value: Any, of: Any, part: slice, rows: int) -> bool:
    if not isinstance(value, Tensor) or not isinstance(of, Tensor) or not of.dim() or len(of) != rows:
        return False
    expected = of[part]
    if value.shape != expected.shape or not value.is_floating_point():
        return torch.equal(value, expected)
    atol = _ATOL * float(of.abs().nan_to_num().max())
    return torch.allclose(value, expected, _RTOL, atol, equal_nan=True)


class SlicedExpected:
    """What is expected of a large call. It holds no outputs: who compares gives the call's inputs again.

    Args:
        cut: of the task, in the call's mode.
        inputs: of the call.
        exactly: the expected outputs of a small call, with their tolerance; see cases.expected_outputs.
        forward: the reference's outputs in its own precision.
        seed: of the rows at which outputs are compared with exact ones.
    """

    def __init__(self, cut: Cut, inputs: list, exactly: Callable[[list], Expected], forward: Forward, seed: int):
        self._cut, self._forward, self._all = cut, forward, cut.rows(inputs)
        per_row = max(1, sum(_bytes(inputs[index]) for index in cut.arguments) // self._all)
        number = min(self._all, max(1, SAMPLE // per_row))
        first = seed % (self._all - number + 1)
        self._sampled = slice(first, first + number)
        self._sample = exactly(cut.part(inputs, self._sampled))
        self.rounded = self._sample.rounded
        """The reference's outputs on the sampled rows."""
        written = sum(_bytes(value) for _, value in leaves(self.rounded)) // number if cut.separable else 0
        self._rows = max(1, SLICE // (per_row + written))
        factor = _ROUNDED if cut.separable else _ANOTHER_SIZE * (self._all / number) ** 0.5
        self._bounds = [bounds and bounds.times(factor) for bounds in self._sample.bounds()]

    @property
    def edits(self) -> bool:
        return self._sample.edits

    @property
    def aliases(self) -> bool:
        return self._sample.aliases

    @property
    def finite(self) -> bool:
        return self._sample.finite

    @property
    def well_conditioned(self) -> bool:
        return self._sample.well_conditioned

    def bounds(self) -> list[Bounds | None]:
        """How far each output of the call, or of a part of its batch, may be from the reference's own."""
        return self._bounds

    def tolerance(self) -> Tolerance:
        """As Expected.tolerance; of the sampled rows."""
        return self._sample.tolerance()

    def check(self, inputs: list, outputs: Any) -> Mismatch | None:
        """Compares outputs, a tree whose tensors are `OutputTensor`, perhaps in shared memory: each value is read once.

        Args:
            inputs: of the call.
        """
        if problem := self._form(outputs):
            return problem
        if not self._cut.separable:
            return within(self._bounds, self._forward(inputs), outputs)
        for rows in self._slices():
            found = _map(outputs, lambda tensor: tensor[rows].clone())  # noqa: B023
            rounded = self._forward(self._cut.part(inputs, rows))
            problem = Expected.around(rounded, self._bounds).check(found)
            if not problem and rows == self._sampled:
                problem = self._sample.check(found)
            if problem:
                where = f"{problem.text} (counted from row {rows.start} of the batch)" if rows.start else problem.text
                return dataclasses.replace(problem, text=where)
        return None

    def _form(self, outputs: Any) -> Mismatch | None:
        """What is wrong with the structure of outputs and, where these are known, the shapes."""
        found, expected = leaves(outputs), leaves(self.rounded)
        if [path for path, _ in found] != [path for path, _ in expected]:
            return Mismatch("wrong_structure", f"returned {form_of(outputs)}, expected {form_of(self.rounded)}")
        for (path, value), (_, like) in zip(found, expected, strict=True) if self._cut.separable else ():
            if not isinstance(value, OutputTensor):
                return Mismatch("wrong_type", f"{path} is {kind_of(value)}, expected {kind_of(like)}", path)
            if value.value.shape != (shape := torch.Size((self._all, *like.shape[1:]))):
                text = f"{path} has shape {shape_of(value.value)}, expected {list(shape)}"
                return Mismatch("wrong_shape", text, path)
        return None

    def _slices(self) -> Iterator[slice]:
        """Rows that together are the batch; the sampled ones are a slice of their own."""
        borders = {0, self._sampled.start, self._sampled.stop, self._all}
        borders |= set(range(0, self._all, self._rows))
        inner = sorted(b for b in borders if not self._sampled.start < b < self._sampled.stop)
        yield from (slice(first, last) for first, last in itertools.pairwise(inner))


def within(bounds: Sequence[Bounds | None], rounded: Any, outputs: Any) -> Mismatch | None:
    """Compares outputs with the reference's own, some of each tensor's elements at a time.

    Args:
        bounds: by leaf.
        rounded: the reference's outputs.
        outputs: a tree whose tensors are `OutputTensor`, perhaps in shared memory: each value is read once.
    """
    for (_, value), (_, actual), bound in zip(leaves(rounded), leaves(outputs), bounds, strict=True):
        for one, other in _rows(value, actual):
            if problem := Expected.around(one, [bound]).check(other):
                return problem
    return None


def _rows(value: Any, actual: Any) -> Iterator[tuple[Any, Any]]:
    """Slices of two tensors along their first dimension, those of the second as copies. What else may come, and tensors
    of two shapes, are left whole."""
    if not isinstance(value, Tensor) or not isinstance(actual, OutputTensor):
        yield value, actual
        return
    whole = value.shape != actual.value.shape or not value.dim() or _bytes(value) <= SLICE
    number = 1 if whole else max(1, SLICE * len(value) // _bytes(value))
    parts = [(value, actual.value)] if whole else zip(value.split(number), actual.value.split(number), strict=True)
    for one, other in parts:
        yield one, OutputTensor(other.clone(), actual.expanded, actual.aliases_input)


def _map(tree: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(tree, (list, tuple)):
        return [_map(part, function) for part in tree]
    if isinstance(tree, dict):
        return {key: _map(part, function) for key, part in tree.items()}
    if not isinstance(tree, OutputTensor):
        return tree
    return OutputTensor(function(tree.value), tree.expanded, tree.aliases_input)


def _bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, Tensor) else 0
