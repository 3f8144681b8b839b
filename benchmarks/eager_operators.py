"""What each operator of many references takes on a GPU, beside the simulated device's model of it.

    python benchmarks/eager_operators.py OUT [--tasks SOURCE...] [--count 100] [--seed 0]

The references run at their published sizes, in evaluation, COUNT of each source at most, drawn at random. A SOURCE
is as in `tasks.source`. Every operator of PyTorch is timed alone (the least of three, the
cache flushed, its launch hidden behind a wait of the GPU) and modelled for an H200, its host left out.
OUT/operators.jsonl has each; OUT/table.md the operators, those first of which the model is off most and most often.
Tasks that fail or take more than LONG_S are left out and named.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import judging
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.boundary import aten
from drkernel.tasks import load_tasks, module
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

LONG_S = 20.0
_WAIT = 200_000
"""Cycles that the GPU waits before an operator, which is launched meanwhile."""


class Timed(TorchDispatchMode):
    """Times every operator that has a price, and models it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []
        self._flushed = torch.empty(2**28, dtype=torch.uint8, device="cuda")
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._until = time.monotonic() + LONG_S

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        with aten.record() as trace:
            result = func(*args, **kwargs)
        if trace.rows:
            if time.monotonic() > self._until:
                raise DrKernelError(f"more than {LONG_S:g} s")
            us = min(self._us(func, args, kwargs) for _ in range(3))
            shapes = [list(arg.shape) for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor)]
            first, model_us = trace.rows[0], judging.modelled_us(trace)
            row = {"name": first.name, "shapes": shapes, "along": first.block, "us": us, "model_us": model_us}
            self.found.append(row)
        return result

    def _us(self, func: Any, args: tuple, kwargs: dict) -> float:
        self._flushed.zero_()
        torch.cuda._sleep(_WAIT)
        self._start.record()
        func(*args, **kwargs)
        self._end.record()
        torch.cuda.synchronize()
        return 1e3 * self._start.elapsed_time(self._end)


def operators_of(task: Task) -> list[dict[str, Any]]:
    reference = Reference(task)
    model, inputs = reference.model(0).eval(), reference.inputs(0)
    reference.forward(model, inputs)
    with Timed() as timed:
        reference.forward(model, inputs)
    return timed.found


def table(found: list[dict[str, Any]]) -> list[str]:
    """Operators by how far the model is off, summed over their calls."""
    by_name = collections.defaultdict(list)
    for each in found:
        by_name[each["name"]].append(each)
    lines = ["| operator | calls | us | modelled | ratio of sums | median ratio | least | largest |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
    ratios = {name: [each["model_us"] / each["us"] for each in some] for name, some in by_name.items()}
    off = lambda name: sum(abs(math.log(ratio)) for ratio in ratios[name])
    for name in sorted(by_name, key=off, reverse=True):
        measured, modelled = (sum(each[key] for each in by_name[name]) for key in ("us", "model_us"))
        some = ratios[name]
        lines.append(
            f"| {name} | {len(some)} | {measured:.1f} | {modelled:.1f} | {modelled / measured:.2f} "
            f"| {statistics.median(some):.2f} | {min(some):.2f} | {max(some):.2f} |"
        )
    return lines


def main(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    aten.install()
    module.DEVICE = "cuda"
    torch.backends.cudnn.allow_tf32 = False  # as the judge measures fp32 tasks
    found, left_out = [], []
    with open(options.out / "operators.jsonl", "w", encoding="utf-8") as file:
        for source in options.tasks:
            for task in load_tasks(source, split="all", count=options.count, seed=options.seed):
                try:
                    rows = operators_of(task)
                except (DrKernelError, RuntimeError) as error:
                    left_out.append(f"{task.id}: {str(error).splitlines()[0][:100]}")
                    continue
                finally:
                    torch.cuda.empty_cache()
                found += rows
                file.writelines(json.dumps({"task": task.id} | row) + "\n" for row in rows)
    lines = [*table(found), "", f"{len(left_out)} tasks were left out", *left_out]
    judging.write_table(options.out, lines)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", nargs="+", default=["tests/judge/tasks", "handwritten", "written"])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    sys.exit(judging.run(main, parser.parse_args()))
