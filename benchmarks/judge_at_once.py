"""Many distinct tasks at once: when does the first verdict come, and when the last?

    python benchmarks/judge_at_once.py OUT [--device cuda] [--workers N] [--count 100] [--seed 3]

Tasks are drawn by version 2 of the generator: those with a convolution or a product and at least two operators behind
it, as on KernelBench's level 2. Each gets one right answer and nothing is prepared before. OUT/verdicts.jsonl has each
verdict with its seconds, OUT/table.md the summary. The exit code is 1 if a verdict is not `ok`.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import Future, as_completed
from statistics import median
from typing import Any

import judging

from drkernel.coldstart.solutions import Solution
from drkernel.judge import Judge
from drkernel.tasks.generator import generate
from drkernel.types import Task, Verdict

HEAVY = ("conv", "linear", "matmul", "bmm")
DRAWN = 20
"""Tasks that are drawn for each one that is wanted."""


def level_2(count: int, seed: int) -> list[tuple[Task, Solution]]:
    """`count` tasks with the solution that fuses most."""
    found = []
    for task in generate("train", DRAWN * count, seed, version=2):
        operators = task.info["composition"]
        if len(operators) >= 3 and operators[0].startswith(HEAVY) and (right := judging.correct_solutions(task)):
            found.append((task, right[-1]))
    return found[:count]


def main() -> int:
    parser = judging.parser(__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    asked = level_2(given.count, given.seed)
    given.out.mkdir(parents=True, exist_ok=True)
    with Judge(device=given.device, workers=given.workers) as judge:
        begin = time.monotonic()
        futures: dict[Future[Verdict], str] = {judge.submit(task, answer.source): task.id for task, answer in asked}
        rows: list[dict[str, Any]] = []
        for future in as_completed(futures):
            verdict, seconds = future.result(), time.monotonic() - begin
            rows.append({"task": futures[future], "seconds": round(seconds, 2), "verdict": verdict.to_dict()})
    with open(given.out / "verdicts.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    times = [row["seconds"] for row in rows]
    refused = [row for row in rows if row["verdict"]["status"] != "ok"]
    lines = [
        "| tasks | ok | first verdict, s | half of them, s | all, s |",
        "|---:|---:|---:|---:|---:|",
        f"| {len(rows)} | {len(rows) - len(refused)} | {times[0]} | {median(times)} | {times[-1]} |",
    ]
    judging.write_table(given.out, lines)
    print("\n".join(lines))
    for row in refused:
        print(row["task"], row["verdict"]["reason"], row["verdict"]["detail"][:300])
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
