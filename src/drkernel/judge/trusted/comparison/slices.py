"""Large calls, compared slice by slice, so that the judge needs little memory beside the call's inputs and outputs.

What takes a call's tolerance to find (fp64, runs with noise, products of lower precision) is done on some rows of the
batch, at a secret place. There the outputs are compared as those of small calls are. Everywhere they are compared with
the reference's own outputs, which are computed some rows at a time, within bounds that those rows have given.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.trusted.comparison.block_tolerance import Tolerance
from drkernel.judge.trusted.comparison.edits import ExpectedCall, of_inputs
from drkernel.judge.trusted.comparison.mismatch import Mismatch
from drkernel.judge.trusted.comparison.tolerance import Expected, RelativeBounds
from drkernel.judge.trusted.outputs import OutputTensor, form_of, kind_of, leaves, map_tensors, shape_of
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError

LARGE = 2**29
"""Bytes of a call's inputs, outputs and weights from which it is compared slice by slice."""
SLICE, SAMPLE = 2**29, 2**25
"""Bytes of inputs and outputs that are looked at together: in the task's precision, and in fp64."""
FEW_ROWS, MOST = 8, 2**29
"""Rows that are looked at in fp64 at least, where they take no more bytes than this."""
_ROUNDED, _ANOTHER_SIZE, _FEW_ROWS = 1.5, 3.0, 4.0
"""By how much bounds grow: the reference's own outputs stand for the exact ones; where the outputs of a batch are not
those of its rows, bounds come from another computation; and fewer rows than FEW_ROWS may all be of one kind."""
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

    def copy(self, inputs: Sequence[Any], rows: slice) -> list:
        """As `part`; what is cut is copied, as contiguous."""
        some = self.part(inputs, rows)
        for index in self.arguments:
            some[index] = some[index].clone(memory_format=torch.contiguous_format)
        return some


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

    def __init__(self, cut: Cut, inputs: list, exactly: Callable[[list], ExpectedCall], forward: Forward, seed: int):
        self._cut, self._forward, self._all = cut, forward, cut.rows(inputs)
        few = cut.copy(inputs, slice(0, 2))
        taken = sum(few[index].nbytes for index in cut.arguments)
        written = sum(value.nbytes for _, value in leaves(forward(few)) if isinstance(value, Tensor))
        per_row = max(1, (taken + written) // 2)
        number = min(self._all, max(1, SAMPLE // per_row, min(FEW_ROWS, MOST // per_row)))
        step = self._all // number
        self._sampled = slice(seed % (self._all - step * (number - 1)), None, step)
        self._sample = exactly(cut.copy(inputs, self._sampled))
        self.rounded = self._sample.rounded
        """The reference's outputs on the sampled rows."""
        self._rows = max(1, SLICE // per_row)
        factor = _ROUNDED if cut.separable else _ANOTHER_SIZE * (self._all / number) ** 0.5
        factor *= _FEW_ROWS if number < min(FEW_ROWS, self._all) else 1.0
        widened = lambda expected: [bounds and bounds.times(factor) for bounds in expected.bounds()]
        self._bounds, self._bounds_of_edits = widened(self._sample), widened(self._sample.edited)
        self._whole: Expected = self._sample

    def bound_by_noise(self, inputs: Callable[[], list], noisy: Iterable[Any]) -> None:
        """Takes bounds from the whole batch where outputs are not those of its rows: how far they may be off follows
        from how long their sums are. A smaller batch does not tell that.

        Args:
            inputs: draws those of the call.
            noisy: the reference's outputs with other rounding in every operator, several times.

        Raises:
            DrKernelError, ValueError: from the reference; bounds stay as they are.
        """
        rounded, precision = self._few_of(self._forward(inputs())), self._sample.precision
        whole = Expected(rounded, rounded, [self._few_of(outputs) for outputs in noisy], precision)
        bounds = [bound and bound.times(_ROUNDED) for bound in whole.bounds()]
        if precision != "ieee":  # equal factors are rounded alike in lower precision, which is not among the noise
            sampled = [bound and bound.times(_ROUNDED) for bound in self._sample.bounds()]
            bounds = [one and other and one.or_more(other) for one, other in zip(bounds, sampled, strict=True)]
        self._bounds, self._whole = bounds, whole

    def _few_of(self, outputs: Any) -> Any:
        """The outputs, or of those that have a row for each of the batch, the sampled rows."""
        few = lambda value: value[self._sampled].clone() if value.dim() and len(value) == self._all else value
        return map_tensors(outputs, few)

    @property
    def edits(self) -> bool:
        return self._sample.edits

    @property
    def aliases(self) -> bool:
        return self._sample.aliases

    @property
    def finite(self) -> bool:
        return self._sample.finite and self._whole.finite

    @property
    def well_conditioned(self) -> bool:
        return self._sample.well_conditioned and self._whole.well_conditioned

    def bounds(self) -> list[RelativeBounds | None]:
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
        if problem := self._sample.check(_map(outputs, operator.itemgetter(self._sampled))):
            return problem
        slices = (slice(first, first + self._rows) for first in range(0, self._all, self._rows))
        own = lambda rows: self._forward(self._cut.part(inputs, rows))
        parts = ((own(rows), _map(outputs, operator.itemgetter(rows))) for rows in slices)
        return _within(self._bounds, parts)

    def check_edits(self, inputs: list, edited: Any) -> Mismatch | None:
        """Compares the inputs as a submission leaves them, with those that the reference leaves.

        Args:
            inputs: of the call. They are changed.
        """
        self._forward(inputs)
        return of_inputs(within(self._bounds_of_edits, inputs, edited))

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


def within(bounds: Sequence[RelativeBounds | None], rounded: Any, outputs: Any) -> Mismatch | None:
    """Compares outputs with the reference's own, some of each tensor's elements at a time.

    Args:
        bounds: by leaf.
        rounded: the reference's outputs.
        outputs: a tree whose tensors are `OutputTensor`, perhaps in shared memory: each value is read once.
    """
    leaves_of_both = zip(leaves(rounded), leaves(outputs), bounds, strict=True)
    problems = (_within([bound], _rows(value, actual)) for (_, value), (_, actual), bound in leaves_of_both)
    return next(filter(None, problems), None)


def _within(bounds: Sequence[RelativeBounds | None], parts: Iterable[tuple[Any, Any]]) -> Mismatch | None:
    """Compares parts of the outputs, each with the reference's: their elements one by one, and the norm of all errors
    together."""
    floats = [bound for bound in bounds if bound]
    errors, sizes = [0.0] * len(floats), [0.0] * len(floats)
    for rounded, found in parts:
        expected = Expected.around(rounded, bounds)
        if problem := expected.check(found):
            return problem
        for index, (error, size) in enumerate(expected.squares()):
            errors[index] += error
            sizes[index] += size
    for bound, error, size in zip(floats, errors, sizes, strict=True):
        if error > bound.norm**2 * size:
            found, most = (error / size) ** 0.5 if size else 1.0, bound.norm
            text = f"the errors of an output are together {found:.3g} of it, at most {most:.3g} was expected"
            return Mismatch("wrong_values", text)
    return None


def _rows(value: Any, actual: Any) -> Iterator[tuple[Any, Any]]:
    """Slices of two tensors along their first dimension, those of the second as copies. What else may come, and tensors
    of two shapes, are left whole."""
    if not isinstance(value, Tensor) or not isinstance(actual, OutputTensor):
        yield value, actual
        return
    whole = value.shape != actual.value.shape or not value.dim() or value.nbytes <= SLICE
    number = 1 if whole else max(1, SLICE * len(value) // value.nbytes)
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
    return OutputTensor(function(tree.value).clone(), tree.expanded, tree.aliases_input)
