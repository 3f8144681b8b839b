"""Which tasks have a backward pass that the simulated device takes, and whether it tells right gradients from wrong.

    python benchmarks/backward_coverage.py OUT [--source handwritten] [--split all] [--count 100]

Gradients are linear in what comes in. So the right answer gives PyTorch twice of that and halves the result, by Triton
kernels; it replaces no work, and is refused for that alone (`nothing_replaced`). The wrong one takes 0.51 for a half.
OUT/rows.jsonl has a line for each task. Exit code 1 if a task is not taken, or a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from drkernel.judge import Judge
from drkernel.tasks import load_tasks
from drkernel.tasks.backward import backward
from drkernel.types import DrKernelError, Task, Verdict

ANSWER = """

import torch
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, o_ptr, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n) * by, mask=i < n)


def scaled(x, by):
    x = x.contiguous()
    o = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), by, BLOCK=1024)
    return o


class {entry}New({entry}):
    def forward(self, *given):
        made = super().forward(*given[:-{grads}], *(scaled(x, 2.0) for x in given[-{grads}:]))
        return tuple(scaled(x, {by}) for x in made) if isinstance(made, tuple) else scaled(made, {by})
"""
FACTORS = {"right": 0.5, "wrong": 0.51}
EXPECTED = {"right": ("hack", "nothing_replaced"), "wrong": ("incorrect", "wrong_values")}
"""Status and reason of the verdicts."""


def main(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    tasks = load_tasks(options.source, split=options.split, count=options.count, generator=options.generator)
    counts: Counter[str] = Counter(tasks=len(tasks))
    with (
        open(options.out / "rows.jsonl", "w", encoding="utf-8") as file,
        Judge(device="simulated", workers=options.workers, cache=False) as judge,
    ):
        for row, pending in [asked(judge, task) for task in tasks]:
            row |= {name: told(future) for name, future in pending.items()}
            row["result"] = result(row)
            counts[row["result"]] += 1
            file.write(json.dumps(row) + "\n")
            file.flush()
            if row["result"] != "as expected":
                print(row, flush=True)
    print(dict(counts))
    return int(bool(counts.keys() - {"tasks", "as expected", "no backward pass"}))


def asked(judge: Judge, task: Task) -> tuple[dict[str, Any], dict[str, Future[Verdict]]]:
    """A task's row, and the verdicts on both answers to its backward pass."""
    try:
        made = backward(task)
    except DrKernelError as error:
        return {"task": task.id, "problem": str(error)}, {}
    grads = made.source.rpartition("def forward(")[2].partition(")")[0].count("grad_output")
    written = {name: ANSWER.format(entry=made.entry_point, grads=grads, by=by) for name, by in FACTORS.items()}
    return {"task": made.id}, {name: judge.submit(made, made.source + text) for name, text in written.items()}


def told(future: Future[Verdict]) -> dict[str, Any]:
    try:
        verdict = future.result()
    except DrKernelError as error:
        return {"problem": str(error)}
    return {"status": verdict.status, "reason": verdict.reason, "detail": verdict.detail[:200]}


def result(row: dict[str, Any]) -> str:
    if "problem" in row:
        return "no backward pass"
    if any("problem" in row[name] for name in FACTORS):
        return "not taken"
    expected = all((row[name]["status"], row[name]["reason"]) == words for name, words in EXPECTED.items())
    return "as expected" if expected else "another verdict"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--source", default="handwritten", help="as tasks.source")
    parser.add_argument("--generator", default="operators", help="of --source generated")
    parser.add_argument("--split", default="all", help="train, validation, test or all")
    parser.add_argument("--count", type=int, help="how many tasks; by default all")
    parser.add_argument("--workers", type=int, default=2)
    sys.exit(main(parser.parse_args()))
