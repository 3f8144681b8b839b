"""Cases that all submissions to a task are asked, drawn once: what is expected of them takes most of an examination.

Their values follow from the judge's secret and the task. The given inputs, those that are nearly the same, and all that
is timed are drawn for each submission.

A verdict tells a few numbers of one case. Who sends many submissions could make a table of outputs that are few. So
cases with an output of fewer than TELLING numbers are drawn for each submission, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from drkernel.judge.trusted.cases import reference_model
from drkernel.judge.trusted.cases.cases import Case, Seeds
from drkernel.judge.trusted.cases.plans import Plan
from drkernel.judge.trusted.cases.reference_model import Perturbation, ReferenceModel
from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.sizes.footprint import bytes_of

TELLING = 2**10
"""So many numbers cannot be learnt from verdicts."""
_PER_OUTPUT, _PER_WEIGHT = 24, 5
"""Bytes that are kept for each expected number: it in fp64, with other rounding, and its bound. How many times the
weights are: as they are, in fp64, and with noise."""

Drawn = Callable[[ReferenceModel, Seeds], Case | None]
"""Draws a case: by which model, under which seeds. None where its regime does not suit the task."""


class SharedCases:
    """Those of one task. What they keep lies where the task's tensors lie, and stays within `limit`.

    Args:
        seeds: of the task.
    """

    def __init__(self, seeds: Seeds):
        self.seeds, self.limit = seeds, 0
        self.bytes = 0
        """About as many are kept; at most `limit`."""
        self._cases: dict[tuple[Plan, Perturbation], Case | None] = {}
        self._models: dict[tuple[int, Perturbation], ReferenceModel] = {}
        self._untold: set[tuple[Plan, Perturbation]] = set()
        """Those that are drawn for each submission."""

    def draw(self, plan: Plan, model: ReferenceModel, seeds: Seeds, drawn: Drawn) -> Case | None:
        """The case as planned. What there is no room for is drawn anew, and is the same.

        Args:
            model, seeds: the reference's model beside a submission's, and seeds of the submission.
        """
        key = plan, model.perturbation
        if key in self._cases:
            return self._cases[key]
        if key in self._untold:
            return drawn(model, seeds)
        kept = self._counterpart(plan.model, model)
        case = drawn(kept or model, self.seeds)
        if case and _tells_little(case):
            self._untold.add(key)
            return drawn(model, seeds)
        size = _size(case) if case else 0
        if kept and self._takes(size):
            self._cases[key] = case
        return case

    def forget(self) -> None:
        """Gives back what is kept."""
        self._cases.clear()
        self._models.clear()
        self.bytes = 0

    def _counterpart(self, number: int, model: ReferenceModel) -> ReferenceModel | None:
        """A model like this one, which nobody changes; None where there is no room."""
        key = number, model.perturbation
        if key not in self._models:
            weights = [*model.model.parameters(), *model.model.buffers()]
            if not self._takes(_PER_WEIGHT * bytes_of(weights)):
                return None
            self._models[key] = reference_model.build(model.reference, model.seed, model.perturbation)
            self._models[key].initial_weights.clear()
        return self._models[key]

    def _takes(self, size: int) -> bool:
        """Counts so many bytes as kept, if there is room."""
        fits = self.bytes + size <= self.limit
        self.bytes += size * fits
        return fits


def _numbers(tree: Any) -> list[int]:
    """How many numbers each tensor or scalar of a tree has."""
    return [value.numel() if isinstance(value, Tensor) else 1 for _, value in leaves(tree)]


def _tells_little(case: Case) -> bool:
    return min(_numbers(case.expected.rounded), default=0) < TELLING


def _size(case: Case) -> int:
    """About how many bytes a case keeps."""
    edited = sum(_numbers(case.inputs)) if case.expected.edits else 0
    return bytes_of(case.inputs) + _PER_OUTPUT * (sum(_numbers(case.expected.rounded)) + edited)
