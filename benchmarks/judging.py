"""What the benchmarks of the judge share: options, submissions, tables and plots.

Importing it puts the root of the repository on the path, for the examples under tests/judge.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drkernel.coldstart.solutions import Solution, solutions
from drkernel.judge import Judge
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.roofline import estimate_times
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

sys.path.insert(0, str(Path(__file__).parents[1]))

CORRECT = ("lazy", "partial", "fused")
"""The kinds of generated solutions that are right and honest."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the arguments that all have: OUT, --device and --workers."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("out", type=Path)
    made.add_argument("--device", default="cuda", choices=("cuda", "simulated"))
    made.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    return made


def run(main: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """The exit code of a benchmark. What the user can mend, such as a machine without a GPU, is one line and code 2."""
    try:
        return main(options)
    except DrKernelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def expect_working(judge: Judge) -> None:
    """Judges one right answer first, since a judge that cannot start anything fails slowly, task by task.

    Raises:
        DrKernelError: the judge failed at it.
    """
    from tests.judge.examples import examples, tasks

    example = next(e for e in examples("honest") if e.name.startswith("84"))
    verdict = judge.judge(tasks()[example.task], example.source)
    if verdict.is_judge_failure:
        raise DrKernelError(f"the judge does not work here: {verdict.reason}: {verdict.detail}")


def modelled_us(trace: OpTrace) -> float:
    """What the simulated H200 takes for a forward that was recorded at the size that counts."""
    return sum(row.microseconds for row in estimate_times(trace, GPUS["H200"], Scale()))


def correct_solutions(task: Task) -> list[Solution]:
    """Generated submissions to a task that are right and honest, in the generator's order."""
    return [solution for solution in solutions(task) if solution.kind in CORRECT]


def load(source: str, path: Path, task: Task, reference: Reference, device: str | None = None) -> Any:
    """A submission's model, with seed 0.

    Args:
        path: a file for its source, which Triton reads.
        device: where tensors are made by default.
    """
    import torch

    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    args, kwargs = reference.init_args()
    torch.manual_seed(0)
    with torch.device(device) if device else contextlib.nullcontext():
        return getattr(module, task.submission_name)(*args, **kwargs)


def write_table(out: Path, lines: list[str]) -> None:
    """OUT/table.md."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text("\n".join(lines) + "\n")


def pyplot() -> Any:
    """Matplotlib's, which draws into files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
