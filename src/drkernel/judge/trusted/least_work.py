"""What a task's work comes to at least: bytes that must be moved, and operations that its products take.

A dry run of the reference at the sizes that count tells both; nothing is measured. A device lays its limits beside them
(`devices/limits.py`), so that a verdict can say how much of the GPU's limit a submission reaches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from drkernel.judge.boundary.aten import GATHERS, Recorder, distinct_elements
from drkernel.judge.boundary.op_trace import Math, OpTrace, Row
from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.sizes.small_data import RUNS
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError


@dataclass(frozen=True)
class LeastWork:
    """Of one forward."""

    bytes: int
    """Inputs and weights read once, as far as the reference reads them, and outputs written once. What is gathered
    counts nothing: which elements that are, only data tell."""
    flops: Mapping[Math, float] = field(default_factory=dict)
    """Operations of the reference's products (two per multiply-add), by the arithmetic of their operands."""
    unread: frozenset[int] = frozenset()
    """The places among the tensors of the inputs of those that the reference never reads."""
    written: int = 0
    """Bytes of the outputs alone, without those that are inputs or weights."""

    @property
    def operations(self) -> float:
        return sum(self.flops.values())


def least_work(reference: Reference, train: bool) -> LeastWork | None:
    """The least work of a task; None where its reference does not run without large data.

    It is the least for who computes what the reference computes. Fewer operations may do where half of a product is
    masked or thrown away; of attention that is told to be causal, half counts.
    """
    for dry in RUNS:
        with contextlib.suppress(DrKernelError), dry():
            inputs, model = reference.inputs(0), reference.model(0).train(train)
            given = [t for _, t in leaves(inputs) if isinstance(t, Tensor)]
            with _Counter([*given, *model.parameters(), *model.buffers()]) as counter:
                outputs = [t for _, t in leaves(reference.forward(model, inputs)) if isinstance(t, Tensor)]
            written = sum(_bytes(output) for output in outputs if not counter.is_given(output))
            unread = frozenset(place for place, tensor in enumerate(given) if not counter.is_read(tensor))
            return LeastWork(counter.bytes_read + written, counter.flops, unread, written)
    return None


def inputs_read(inputs: Any, least: LeastWork | None) -> list[Tensor]:
    """The tensors among a task's inputs without those of which its least work says that nothing reads them."""
    tensors = [t for _, t in leaves(inputs) if isinstance(t, Tensor)]
    return [t for place, t in enumerate(tensors) if least is None or place not in least.unread]


class _Counter(Recorder):
    """Counts what operators read of some tensors, and the operations of products.

    Args:
        given: the tensors, whose views are known by their memory.
    """

    def __init__(self, given: list[Tensor]):
        super().__init__(OpTrace(), merge=False)
        self._regions: dict[int, dict[tuple, int]] = {_memory(tensor): {} for tensor in given}
        self._sizes: dict[int, int] = {}
        for tensor in given:
            self._sizes[_memory(tensor)] = max(_bytes(tensor), self._sizes.get(_memory(tensor), 0))
        self.flops: dict[Math, float] = {}

    @property
    def bytes_read(self) -> int:
        return sum(min(sum(read.values()), self._sizes[memory]) for memory, read in self._regions.items())

    def is_read(self, tensor: Tensor) -> bool:
        """Whether an operator was given this tensor, or another part of its memory."""
        return bool(self._regions[_memory(tensor)])

    def is_given(self, tensor: Tensor) -> bool:
        """Whether it lies in the memory of a tensor that was given."""
        return _memory(tensor) in self._regions

    def add(
        self, name: str, read: list[Tensor], written: list[Tensor], flops: float = 0.0, *more: Any, **others: Any
    ) -> Row:
        row = super().add(name, read, written, flops, *more, **others)
        if flops and name not in GATHERS:
            self.flops[row.math] = self.flops.get(row.math, 0.0) + flops
        for tensor in read:
            if (regions := self._regions.get(_memory(tensor))) is not None:
                place = tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())
                in_place = name.endswith("_") and others.get("places") is not None
                gathered = (name in GATHERS or in_place) and tensor is read[0]
                share = others.get("share", 1.0) if tensor is read[0] else 1.0
                regions[place] = max(0 if gathered else int(share * _bytes(tensor)), regions.get(place, 0))
        return row


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _bytes(tensor: Tensor) -> int:
    return distinct_elements(tensor) * tensor.element_size()
