"""The simulated device of a process: `install` turns the process into one, `record` counts a forward on it.

Runners of the simulated device run submissions so. Benchmarks and tests install it without fake CUDA.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from typing import Any

from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.types import DrKernelError

WORK_BUDGET = 1e9
"""Simulated work that one record() allows: elements, plus 2000 per interpreted operation. It takes a core 3 to 12 s."""

_ELSEWHERE = (2, 3)
"""Models at hidden shapes, see plans.py; those with one long size are below -1."""

_machines: list[Any] = []


def install(fake_cuda: bool) -> None:
    """Makes Triton kernels that are defined from now on run on the CPU in this process. Further calls do nothing.

    Args:
        fake_cuda: also make CPU tensors pass for CUDA tensors; for processes that run submissions only.
    """
    if not _machines:
        os.environ["TRITON_INTERPRET"] = "1"
        from drkernel.judge.untrusted.simulated import interpreter

        _machines.append(interpreter.build())
    if fake_cuda and _machines[0].fake_cuda is None:
        from drkernel.judge.untrusted.simulated import cpu_as_cuda

        cpu_as_cuda.install(_machines[0])


@contextlib.contextmanager
def record(skip: Collection[str] = (), budget: float = WORK_BUDGET) -> Iterator[OpTrace]:
    """Counts the Triton launches and ATen operators of the block.

    Args:
        skip: sites (see Row) of kernels whose launches are counted but not executed.
        budget: simulated work of all launches together, see WORK_BUDGET.

    Raises:
        DrKernelError: install() was not called.
        WorkBudgetExceeded: from the launch that exceeds the budget.
    """
    if not _machines:
        raise DrKernelError("simulated device: record() before install()")
    from drkernel.judge.untrusted.simulated.recorder import Session

    trace = OpTrace()
    with _machines[0].recording(Session(trace, skip, budget)):
        yield trace


@contextlib.contextmanager
def record_grids(seed: int = 0) -> Iterator[OpTrace]:
    """Counts launches and their programs. No launch is executed but for a few of its programs, whose loads give nothing
    (`sampled`), so that tensors need no data. `seed` decides which programs."""
    from drkernel.judge.untrusted.simulated.recorder import Session

    trace, _machines[0].seed = OpTrace(), seed
    with _machines[0].recording(Session(trace, (), WORK_BUDGET, dry=True)):
        yield trace


def copied_to_host(tensor: Any) -> None:
    """Counts a copy of all elements to the host in a block that is recorded."""
    if session := _machines[0].session:
        session.copied_to_host(tensor)


def choosing(model: int) -> contextlib.AbstractContextManager[None]:
    """A block in which tuners choose for a model by its number: the first configuration where times are taken, others
    at other shapes."""
    from drkernel.judge.untrusted.simulated import autotuning

    return autotuning.choosing(abs(model) - 1 if model in _ELSEWHERE or model < -1 else 0)
