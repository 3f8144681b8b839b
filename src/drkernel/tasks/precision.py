"""The precision of a task: what arithmetic a right submission may use.

`ieee` is fp32 throughout. `tf32` allows products of TF32. `low` allows products of 16-bit numbers. `auto` follows the
task: `low` where an input or a weight has 16 bits, else `ieee`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import cast, get_args

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from drkernel.tasks.module import Reference
from drkernel.tasks.seeding import global_state_kept
from drkernel.types import PRECISIONS, DrKernelError, Precision, Task

AUTO = PRECISIONS[0]
_WORDS = re.compile(r"half|float16|bf16|fp16", re.IGNORECASE)
"""A source without these words makes no tensor of 16 bits, so that it need not be executed."""


def with_precision(task: Task, wanted: str = AUTO) -> Task:
    """The task with the wanted precision. `auto` looks at its inputs and weights (`has_16_bits`).

    Raises:
        DrKernelError: the word is none of PRECISIONS.
    """
    if wanted not in PRECISIONS:
        raise DrKernelError(f"tasks.precision: found {wanted!r}, expected one of {', '.join(PRECISIONS)}")
    if wanted != AUTO:
        return replace(task, precision=cast(Precision, wanted))
    try:
        return replace(task, precision="low" if has_16_bits(task) else "ieee")
    except DrKernelError as error:
        return replace(task, precision="ieee", info={**task.info, "precision": f"ieee, since unknown: {error}"})


def may_have_16_bits(source: str) -> bool:
    """Whether a source names a type of 16 bits anywhere; it is not executed."""
    return _WORDS.search(source) is not None


def has_16_bits(task: Task) -> bool:
    """Whether an input or a weight is float16 or bfloat16. Both are made without memory, on torch's meta device.

    Raises:
        DrKernelError: the source does not run there.
    """
    if not may_have_16_bits(task.source):
        return False
    with global_state_kept(), torch.device("meta"):
        reference = Reference(task)
        tensors = [*reference.model(0).parameters(), *tree_leaves(reference.inputs(0))]
    return any(isinstance(t, Tensor) and t.dtype in (torch.float16, torch.bfloat16) for t in tensors)


def summary(tasks: Sequence[Task]) -> str:
    """How many tasks have which precision, for the log: `ieee 500, low 12`."""
    counts = Counter(task.precision for task in tasks)
    return ", ".join(f"{name} {counts[name]}" for name in get_args(Precision) if counts[name])
