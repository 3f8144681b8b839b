"""What a judge compares: real numbers, in formats that torch computes with."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.trusted.outputs import all_same, leaves
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task


def expect_real(task: Task, outputs: Any) -> None:
    """Tolerances are of real numbers; and Triton has no complex ones, so that a kernel writes pairs anyway."""
    for path, value in leaves(outputs):
        if value.is_complex() if isinstance(value, Tensor) else isinstance(value, complex):
            raise DrKernelError(
                f"task {task.id}: {path} is complex, which is not judged; let forward return torch.view_as_real of it"
            )


def expect_formats(reference: Reference, seed: int) -> None:
    """What inputs, weights and outputs hold is counted, compared and converted, which torch cannot in all formats."""
    model, inputs = reference.model(seed).eval(), reference.inputs(seed)
    given = [*model.named_parameters(), *model.named_buffers(), *leaves(inputs, "inputs")]
    for name, value in [*given, *leaves(reference.forward(model, inputs))]:
        if isinstance(value, Tensor) and not _computes(value.dtype):
            bits = f"torch.int{8 * value.element_size()}"
            mend = f"hand its bits over as {bits}, and let forward view them as {value.dtype}"
            mend = "let forward return it in another format" if name.startswith("output") else mend
            raise DrKernelError(f"task {reference.task.id}: {name} is {value.dtype}, which is not judged; {mend}")


@functools.cache
def _computes(dtype: torch.dtype) -> bool:
    try:
        numbers = torch.zeros(2, dtype=dtype)
        torch.promote_types(dtype, torch.float32)
        return all_same(leaves(numbers), leaves(numbers)) and not numbers.count_nonzero()
    except RuntimeError:
        return False
