"""Tasks in KernelBench's manner by fifteen authors, and as many variants of them as wanted.

The authors are runs of a large language model, in 2026-11 (docs/policies.md, "Written tasks"). Each had a field.
Of the first six: vision, language, numerical, chains (of operators behind a product or a convolution), series (and
volumes); the sixth, mixed, is the test split. 40 % of theirs are single operators or formulas, 40 % chains, 20 % small
networks. Of the next six, with whom half of all tasks are networks: operators (with chains), networks, formulas (single
operators), combinations (chains), images and sequences (blocks and whole networks).
Of the last three: architectures (whole networks), fusions (chains) and functions (single operators and formulas).
All were told to write from their own knowledge, and not to look for or reproduce a benchmark's problems.
`written.parquet` has the tasks as they were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from drkernel.tasks.loaders.records import read_records
from drkernel.tasks.module import Reference
from drkernel.tasks.written import variants
from drkernel.types import DrKernelError, Task

FILE = Path(__file__).with_name("written.parquet")
FIRST_FAMILIES = ("vision", "language", "numerical", "chains", "series", "mixed")
NEXT_FAMILIES = (*FIRST_FAMILIES, "operators", "networks", "formulas", "combinations", "images", "sequences")
FAMILIES = (*NEXT_FAMILIES, "architectures", "fusions", "functions")
"""The authors' fields."""


def read_written() -> list[Task]:
    """All 2,170: 1,887 to train on, 183 for validation, 100 to test on."""
    return read_records(FILE)


def stream(split: str, seed: int, families: list[str] | None = None) -> Iterator[Task]:
    """Variants of a split's tasks that run, depend on their inputs and make finite numbers; without end.

    Raises:
        DrKernelError: no task of the split is of these families.
    """
    tasks = [task for task in read_written() if task.split == split and task.family in (families or FAMILIES)]
    if not tasks:
        raise DrKernelError(f"written tasks: none of split {split} is of families {', '.join(families or ())}")
    return (task for task in variants.variants(tasks, f"{split}/{seed}") if _is_sound(task))


def _is_sound(task: Task) -> bool:
    try:
        with torch.device("meta"):
            reference = Reference(task)
            reference.forward(reference.model(0), reference.inputs(0))
        reference = Reference(task)
        model = reference.model(0).eval()
        made, other = (reference.forward(model, reference.inputs(seed)) for seed in (1, 2))
    except DrKernelError:
        return False
    if not isinstance(made, torch.Tensor) or not made.numel() or made.shape != other.shape:
        return False
    made, other = made.double(), other.double()
    scale = made.abs().max()
    return bool(made.isfinite().all() and scale > 1e-3 and (made - other).abs().max() > 0.01 * scale)
