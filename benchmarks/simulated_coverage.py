"""Which tasks the simulated device takes, how long that needs, and whether it tells right from wrong answers.

    python benchmarks/simulated_coverage.py OUT [--every 2] [--only mlp resnet ...]

Single operators and chains are those of `published_sizes.py`; networks of 5 to 140 million weights are the files of
`simulated_tasks/`. Of a network, the answers are the network with one pointwise function in Triton: right in one, and
slightly wrong in the other. OUT/rows.jsonl has a line and OUT/table.md a row for each task. Exit code 1 if any task is
not taken, or a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import judging
import torch
from published_sizes import ENTRIES

from drkernel.judge import Judge
from drkernel.judge.boundary import aten
from drkernel.judge.boundary.construction import seed_one_generator
from drkernel.judge.devices.simulated.device import SimulatedDevice
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task, Verdict

NETWORKS = Path(__file__).parent / "simulated_tasks"
KERNEL = """import triton
import triton.language as tl


@triton.jit
def pointwise(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, {expression}, mask=i < n)


def in_triton(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    pointwise[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
    return y


"""
FUNCTIONS = {
    "F.relu(": "tl.maximum(x, 0.0)",
    "F.gelu(": "0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))",
    "F.silu(": "x / (1.0 + tl.exp(-x))",
    "torch.tanh(": "2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0",
}
"""Calls in the networks, and what they are in Triton."""

ANSWERS = {"honest": ("ok",), "wrong": ("incorrect", "not_general")}
"""The statuses that are expected. An answer that is wrong at hidden shapes alone is not general."""
Row = dict[str, Any]


def main(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    aten.install()
    seed_one_generator()
    device = SimulatedDevice(GPUS["H200"], os.urandom(16))
    device.prepare(Task("warm-up", ENTRIES[0].source))
    rows: list[Row] = []
    with (
        open(options.out / "rows.jsonl", "w", encoding="utf-8") as file,
        Judge(device="simulated", workers=options.workers, cache=False) as judge,
    ):
        for kind, task, honest, wrong in chosen(options):
            row: Row = {"kind": kind, "name": task.id} | prepared(device, task)
            if "problem" not in row:
                answers = {"honest": judge.submit(task, honest), "wrong": judge.submit(task, wrong)}
                row |= {name: summary(future.result()) for name, future in answers.items()}
            row["expected"] = as_expected(row)
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            judging.write_table(options.out, table(rows))
            print(line_of(row), flush=True)
    print("\n".join(totals(rows)))
    return int(not all(row["expected"] for row in rows))


def as_expected(row: Row) -> bool:
    return "problem" not in row and all(row[name]["status"] in statuses for name, statuses in ANSWERS.items())


def chosen(options: argparse.Namespace) -> list[tuple[str, Task, str, str]]:
    """Kind, task, honest and wrong answer of each."""
    operators = [("operator", entry.task, entry.honest, entry.wrong) for entry in ENTRIES[:: options.every]]
    networks = [("network", Task(path.stem, path.read_text())) for path in sorted(NETWORKS.glob("*.py"))]
    found = operators + [(kind, task, answer(task.source), answer(task.source, True)) for kind, task in networks]
    return [one for one in found if not options.only or one[1].id.rpartition("/")[2].startswith(tuple(options.only))]


def answer(source: str, wrong: bool = False) -> str:
    """A network with its last call of a known function in Triton; the wrong one adds a tenth of |x|."""
    network = source.replace("class Model(", "class ModelNew(").replace("super(Model,", "super(ModelNew,")
    network = network.partition("def get_inputs")[0]
    call = max(FUNCTIONS, key=network.rfind)
    before, _, after = network.rpartition(call)
    expression = FUNCTIONS[call] + " + 0.1 * tl.abs(x)" * wrong
    return KERNEL.replace("{expression}", expression).join(parts(before)) + "in_triton(" + after


def parts(network: str) -> tuple[str, str]:
    """A network's imports, and the rest."""
    first = min(place for place in (network.find(word) for word in ("\nclass ", "\ndef ")) if place >= 0)
    return network[: first + 1], network[first + 1 :]


def prepared(device: SimulatedDevice, task: Task) -> Row:
    """Processor seconds that a task takes to prepare, and its sizes before and after; else what is wrong with it."""
    start = time.process_time()
    try:
        found = device.prepare(task)
    except DrKernelError as error:
        return {"seconds": time.process_time() - start, "problem": str(error)}
    seconds = time.process_time() - start
    full, small = Reference(found.task).constants, found.task.small or {}
    sizes = " ".join(f"{name}:{full[name]}>{value}" for name, value in sorted(small.items()))
    return {"seconds": seconds, "sizes": sizes} | ({"problem": found.degenerate} if found.degenerate else {})


def summary(verdict: Verdict) -> Row:
    return {
        "status": verdict.status,
        "reason": verdict.reason,
        "detail": verdict.detail,
        "seconds": round(verdict.seconds, 2),
    }


def table(rows: list[Row]) -> list[str]:
    head = [
        "| task | prepared, s | sizes, published > small | honest | wrong | verdicts, s |",
        "|---|---:|---|---|---|---:|",
    ]
    return [*totals(rows), "", *head, *map(line_of, rows)]


def totals(rows: list[Row]) -> list[str]:
    lines = ["| tasks | taken | as expected | seconds to prepare, median and most |", "|---|---:|---:|---:|"]
    for kind in ("operator", "network"):
        if found := [row for row in rows if row["kind"] == kind]:
            seconds = [row["seconds"] for row in found]
            taken, fine = sum("problem" not in row for row in found), sum(row["expected"] for row in found)
            spread = f"{statistics.median(seconds):.2f}, {max(seconds):.1f}"
            lines.append(f"| {len(found)} {kind}s | {taken} | {fine} | {spread} |")
    return lines


def line_of(row: Row) -> str:
    name, seconds = row["name"].rpartition("/")[2], f"{row['seconds']:.2f}"
    if "problem" in row:
        return f"| {name} | {seconds} | no: {row['problem'][:160]} | | | |".replace("\n", " ")
    texts = []
    for kind, right in ANSWERS.items():
        found = row[kind]
        text = f"{found['status']} {found['reason']}"
        texts.append(text if found["status"] in right else f"**{text}** {found['detail'][:120]}".replace("|", "/"))
    both = row["honest"]["seconds"] + row["wrong"]["seconds"]
    return f"| {name} | {seconds} | {row['sizes']} | {' | '.join(texts)} | {both:.1f} |".replace("\n", " ")


if __name__ == "__main__":
    parser = judging.parser(__doc__)
    parser.add_argument("--every", type=int, default=1, help="takes every n-th of the operators")
    parser.add_argument("--only", nargs="*", default=[], help="tasks whose names start so")
    sys.exit(main(parser.parse_args()))
