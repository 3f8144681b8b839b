"""Many distinct tasks at once: when does the first verdict come, and when the last?

    python benchmarks/judge_at_once.py OUT [--device cuda] [--workers N] [--count 100] [--seed 3]

Tasks are drawn by the generator `graphs`: those with a convolution or a product and at least two operators behind
it, as on KernelBench's level 2. Each gets one right answer and nothing is prepared before. One task more is judged
first, so that the judge has started when the clock does. OUT/verdicts.jsonl has each verdict with its seconds, as they
come; OUT/table.md has the summary. Where no verdict comes for QUIET_S, it says what the examiners do, and each writes
its stack to the standard error. A task that the judge refuses is a row without a verdict. The exit code is 1 if a
verdict is not `ok`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from statistics import median
from typing import Any

import judging

from drkernel.coldstart.solutions import Solution
from drkernel.judge import Judge
from drkernel.tasks.generators import generate
from drkernel.types import DrKernelError, Task, Verdict

HEAVY = ("conv", "linear", "matmul", "bmm")
PORTION = 2
"""Tasks that are drawn for each one that is wanted, until there are enough."""
QUIET_S = 4.0
"""Seconds without a verdict after which one asks what the examiners do."""
STAGES = ("prepare", "compile", "wait", "exam", "gpu")
"""Milliseconds of `cost` in a verdict."""


def level_2(count: int, seed: int) -> list[tuple[Task, Solution]]:
    """`count` tasks with the solution that fuses most."""
    found: list[tuple[Task, Solution]] = []
    drawn = 0
    while len(found) < count:
        tasks = generate("train", drawn + PORTION * (count - len(found)) + 1, seed, generator="graphs")
        for task in tasks[drawn:]:
            operators = task.info["composition"]
            if len(operators) >= 3 and operators[0].startswith(HEAVY) and (right := judging.correct_solutions(task)):
                found.append((task, right[-1]))
        drawn = len(tasks)
    return found[:count]


def main() -> int:
    parser = judging.parser(__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    begin = time.monotonic()
    first, *asked = level_2(given.count + 1, given.seed)
    print(f"{len(asked)} tasks drawn in {time.monotonic() - begin:.1f} s", flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    begin = time.monotonic()
    with (
        Judge(device=given.device, workers=given.workers) as judge,
        open(given.out / "verdicts.jsonl", "w", encoding="utf-8") as file,
    ):
        judge.judge(first[0], first[1].source)
        print(f"the judge started in {time.monotonic() - begin:.1f} s, with one verdict", flush=True)
        begin = time.monotonic()
        futures: dict[Future[Verdict], str] = {judge.submit(task, answer.source): task.id for task, answer in asked}
        for future in completed(judge, futures):
            seconds = time.monotonic() - begin
            rows.append({"task": futures[future], "seconds": round(seconds, 2)} | found(future))
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
            if len(rows) == 1 or 4 * len(rows) // len(asked) > 4 * (len(rows) - 1) // len(asked):
                print(f"{len(rows)} of {len(asked)} verdicts after {seconds:.1f} s", flush=True)
    lines = summary(rows)
    judging.write_table(given.out, lines)
    print("\n".join(lines))
    refused = [row for row in rows if row["verdict"]["status"] != "ok"]
    for row in refused:
        print(row["task"], row["verdict"]["reason"], row["verdict"]["detail"][:300])
    return 1 if refused else 0


def found(future: Future[Verdict]) -> dict[str, Any]:
    """The verdict; of a task that the judge does not take, something like one."""
    try:
        return {"verdict": future.result().to_dict()}
    except DrKernelError as error:
        return {"verdict": {"status": "refused", "reason": "task", "detail": str(error), "evidence": {}}}


def completed(judge: Judge, futures: dict[Future[Verdict], str]) -> Iterator[Future[Verdict]]:
    """The futures as they are done. Meanwhile it says what the judge does, where nothing is done for long."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, QUIET_S, FIRST_COMPLETED)
        yield from done
        for line in [] if done else judge.doing():
            print(f"  {line}", flush=True)


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """When shares of the verdicts had come, and what each stage took of all of them."""
    quarters = [rows[max(0, len(rows) * quarter // 4 - 1)]["seconds"] for quarter in range(5)]
    ok = sum(row["verdict"]["status"] == "ok" for row in rows)
    lines = [
        "| tasks | ok | first verdict, s | 25 %, s | 50 %, s | 75 %, s | all, s |",
        "|---:|---:|---:|---:|---:|---:|---:|",
        f"| {len(rows)} | {ok} | " + " | ".join(f"{seconds:.1f}" for seconds in quarters) + " |",
        "",
        "| stage | median, ms | all together, s |",
        "|---|---:|---:|",
    ]
    for stage in STAGES:
        took = [row["verdict"]["evidence"].get("cost", {}).get(stage, 0.0) for row in rows]
        lines.append(f"| {stage} | {median(took):.0f} | {sum(took) / 1e3:.1f} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
