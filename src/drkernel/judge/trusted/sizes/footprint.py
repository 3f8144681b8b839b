"""What a task needs of a GPU's memory, found out by a dry run without data."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from drkernel.judge.trusted.comparison.slices import LARGE
from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.sizes.without_data import DRY_RUNS
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError

GIB = 2**30
_JUDGE, _RUNNER = 2 * GIB, GIB
"""What comparisons of slices take, and what a runner takes before it has tensors."""
_PADDING = 1024
"""Bytes around each tensor in an area."""
_LARGEST, _SHARE = 2**30, 64
"""No call of more bytes is compared as a whole, nor one of more than this part of the memory for an examination: its
cases keep outputs in fp64, bounds and inputs, together some twenty times as much."""


@dataclass(frozen=True)
class Footprint:
    """Bytes of one call."""

    inputs: int
    outputs: int
    weights: int
    large_from: int = LARGE
    """From so many on the task's calls are compared slice by slice."""

    @property
    def large(self) -> bool:
        """Whether the task's calls are compared slice by slice."""
        return self.inputs + self.outputs + self.weights > self.large_from

    @property
    def judge(self) -> int:
        """What the examination of a large task takes outside of the submission's process: inputs and outputs in both
        processes' view, the reference's outputs, and weights as they are constructed, perturbed and read back."""
        return 2 * self.inputs + 3 * self.outputs + 6 * self.weights + _JUDGE

    @property
    def least(self) -> int:
        """The least with which a submission can be examined that has no memory of its own but its outputs: those of a
        call, and those of the call before, which its runner keeps."""
        return self.judge + 2 * self.outputs + self.weights + _RUNNER

    @property
    def usual(self) -> int:
        """With room for what submissions allocate besides."""
        return self.least + 2 * self.outputs + self.inputs + self.weights + _RUNNER

    def __str__(self) -> str:
        parts = ((name, getattr(self, name)) for name in ("inputs", "outputs", "weights"))
        return ", ".join(f"{name} {size / GIB:.1f} GiB" for name, size in parts)


def large_from(memory: float) -> int:
    """From how many bytes on a call is compared slice by slice, where an examination may take `memory` bytes.

    >>> [large_from(gib * GIB) / GIB for gib in (12, 40, 66)]
    [0.5, 0.625, 1.0]
    """
    return int(min(_LARGEST, max(LARGE, memory / _SHARE)))


def of(reference: Reference, large_from: int = LARGE) -> Footprint:
    """The footprint of a task. Where outputs cannot be known without data, they count as the inputs.

    Args:
        large_from: see Footprint.

    Raises:
        DrKernelError: the task's inputs or its model cannot be made.
    """
    for dry in DRY_RUNS:
        with contextlib.suppress(DrKernelError), dry():
            inputs, model = reference.inputs(0), reference.model(0)
            return _footprint(inputs, model, reference.forward(model, inputs), large_from)
    inputs, model = reference.inputs(0), reference.model(0)
    return _footprint(inputs, model, inputs, large_from)


def _footprint(inputs: list, model: nn.Module, outputs: Any, large_from: int) -> Footprint:
    weights = bytes_of([*model.parameters(), *model.buffers()])
    return Footprint(bytes_of(inputs), bytes_of(outputs), weights, large_from)


def bytes_of(tree: Any) -> int:
    """Bytes of an area that the tensors of a tree take."""
    return sum(value.nbytes + _PADDING for _, value in leaves(tree) if isinstance(value, Tensor))
