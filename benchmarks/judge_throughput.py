"""Verdicts per second on a batch like one of reinforcement learning, and what each stage of a verdict costs.

    python benchmarks/judge_throughput.py OUT [--device cuda] [--no-screen] [--count 600] [--workers 16] [--seed 1]

Groups of submissions to generated tasks: half are right, a quarter are wrong and a quarter fail to compile. Two of
sixteen repeat another exactly. All others differ in the names of their kernels, so that neither verdicts nor compiled
kernels are shared. OUT/verdicts.jsonl has each outcome and its cost, OUT/table.md the rate and the cost of each stage,
OUT/timeline.png when each stage of each submission ran.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from pathlib import Path
from typing import Any

import judging
import numpy
from rich.progress import track

from drkernel.coldstart.solutions import solutions
from drkernel.judge import Judge
from drkernel.tasks.generators import generate
from drkernel.types import DrKernelError, Task, Verdict

REPEATS = 1 / 8
FAILING = (
    *("undefined_name", "missing_bracket", "missing_import", "no_such_function", "wrong_axis"),
    *("block_not_a_power_of_two", "missing_argument"),
)
KINDS = ("right", "wrong", "failing")
CLASSES = ("ok", "wrong", "failed")
COLORS = {"queue": "lightgrey", "screen": "tab:green", "compile": "tab:orange", "examiner": "tab:pink"}
COLORS |= {"exam": "tab:blue", "judge": "tab:blue"}


def batch(count: int, group: int, seed: int) -> Iterator[tuple[Task, str, str]]:
    """(task, kind, source) of `count` submissions, group by group."""
    draw = random.Random(seed)
    left = count
    for task in generate("train", -(-count // group), seed):
        submissions = list(_group(task, group, draw))
        draw.shuffle(submissions)
        yield from ((task, kind, source) for kind, source in submissions[: min(group, left)])
        left -= group


def _group(task: Task, size: int, draw: random.Random) -> Iterator[tuple[str, str]]:
    graded = solutions(task, wrong=99)
    pools = {
        "right": [s.source for s in graded if s.kind in judging.CORRECT],
        "wrong": [s.source for s in graded if s.kind == "hack" or (s.kind == "mistaken" and s.note not in FAILING)],
        "failing": [s.source for s in graded if s.note in FAILING],
    }
    pools["failing"].append(pools["right"][-1].replace("class ModelNew", "class Model2"))
    made: list[tuple[str, str]] = []
    for number in range(size):
        if made and draw.random() < REPEATS:
            made.append(draw.choice(made))
            continue
        kind = KINDS[(0, 1, 0, 2)[number % 4]]
        made.append((kind, varied(draw.choice(pools[kind]), f"{draw.randrange(16**6):06x}")))
    yield from made


def varied(source: str, word: str) -> str:
    """The same program under other names."""
    return re.sub(r"\bkernel\b", f"kernel_{word}", source)


def main(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    submissions = list(batch(options.count, options.group, options.seed))
    settings = {"device": options.device, "workers": options.workers, "timeout_s": options.timeout}
    with Judge(**settings, screen=options.screen) as judge:
        judging.expect_working(judge)
        submissions, preparing = prepared(judge, submissions)
        start, ends = time.monotonic(), dict[int, float]()

        def submit(place: int, task: Task, source: str) -> Future[Verdict]:
            future = judge.submit(task, source)
            future.add_done_callback(lambda _: ends.setdefault(place, time.monotonic()))
            return future

        pending = [submit(place, task, source) for place, (task, _, source) in enumerate(submissions)]
        for _ in track(as_completed(set(pending)), "judging", total=len(set(pending))):
            pass
        wall = time.monotonic() - start
        while len(ends) < len(pending):
            time.sleep(1e-3)
    verdicts = [future.result() for future in pending]
    rows = [
        record(submission, verdict, ends[place], start)
        for place, (submission, verdict) in enumerate(zip(submissions, verdicts, strict=True))
    ]
    first = {future: place for place, future in reversed(list(enumerate(pending)))}
    for place, future in enumerate(pending):
        rows[place]["repeat"] = first[future] != place
    with open(options.out / "verdicts.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    lines = [*table(rows, wall, verdicts[0].device, options), preparing]
    judging.write_table(options.out, lines)
    print("\n".join(lines))
    plot([row for row in rows if not row["repeat"]], wall, options.out / "timeline.png")
    return 0


def prepared(judge: Judge, submissions: list[tuple[Task, str, str]]) -> tuple[list[tuple[Task, str, str]], str]:
    """The submissions to usable tasks, once the judge has prepared these, and a line on what that took."""
    start, usable, refused = time.monotonic(), set(), []
    for task in track(list({task.id: task for task, *_ in submissions}.values()), "preparing tasks"):
        try:
            judge.check_task(task)
            usable.add(task.id)
        except DrKernelError as error:
            refused.append(f"{task.id}: {error}")
    seconds = time.monotonic() - start
    line = f"Before the clock started, {len(usable)} tasks were prepared in {seconds:.1f} s; unusable: {len(refused)}"
    return [submission for submission in submissions if submission[0].id in usable], "  \n- ".join([line, *refused])


def record(submission: tuple[Task, str, str], verdict: Verdict, end: float, start: float) -> dict[str, Any]:
    """One row: what it was, what was said, and what it cost; spans in seconds from the first submission."""
    task, kind, _ = submission
    cost = dict(verdict.evidence.get("cost", {}))
    spans = cost.pop("spans", None) or [["judge", end - verdict.seconds, end]]
    cost = {stage: value for stage, value in cost.items() if isinstance(value, (int, float))}
    outcome = "ok" if verdict.ok else "failed" if verdict.status == "invalid" else "wrong"
    return {
        "task": task.id, "kind": kind, "outcome": outcome, "status": verdict.status, "reason": verdict.reason,
        "detail": verdict.detail[:200], "speedup": verdict.speedup, "seconds": verdict.seconds,
        "cost": cost or {"judge": 1e3 * verdict.seconds},
        "spans": [[stage, begin - start, finish - start] for stage, begin, finish in spans],
    }  # fmt: skip


def table(rows: list[dict], wall: float, device: str, options: argparse.Namespace) -> list[str]:
    own = [row for row in rows if not row["repeat"]]
    cores = len(os.sched_getaffinity(0))
    lines = [f"{len(rows)} submissions on {device}, {options.workers} workers, {cores} cores: {wall:.1f} s, "]
    lines[0] += f"{len(rows) / wall:.2f} verdicts/s, {len(own) / wall:.2f} without the exact repeats "
    lines[0] += f"({100 * (1 - len(own) / len(rows)):.1f} % of all)"
    lines += ["", "| made to be | ok | wrong | failed |", "|---|---|---|---|"]
    for kind in KINDS:
        found = [sum(row["outcome"] == outcome for row in own if row["kind"] == kind) for outcome in CLASSES]
        lines.append(f"| {kind} | {' | '.join(map(str, found))} |")
    lines += ["", "| outcome | stage | submissions | mean ms | p50 | p95 |", "|---|---|---|---|---|---|"]
    for outcome in CLASSES:
        mine = [row["cost"] for row in own if row["outcome"] == outcome]
        for stage in sorted({stage for cost in mine for stage in cost}):
            times = numpy.array([cost[stage] for cost in mine if stage in cost])
            p50, p95 = numpy.percentile(times, [50, 95])
            lines.append(f"| {outcome} | {stage} | {len(times)} | {times.mean():.1f} | {p50:.1f} | {p95:.1f} |")
    lines.append("")
    for outcome, name in (("ok", "correct"), ("wrong", "wrong"), ("failed", "failing")):
        held = [row["cost"].get("gpu", 0.0) for row in own if row["outcome"] == outcome]
        if held and options.device == "cuda":
            lines.append(f"GPU held exclusively per {name} kernel: {numpy.mean(held):.1f} ms  ")
    return lines


def plot(rows: list[dict], wall: float, path: Path) -> None:
    pyplot = judging.pyplot()
    from matplotlib.patches import Patch

    rows = sorted(rows, key=lambda row: row["spans"][-1][2])
    stages = sorted({stage for row in rows for stage, *_ in row["spans"]})
    colors = {stage: COLORS.get(stage, pyplot.cm.tab10(place)) for place, stage in enumerate(stages)}
    figure, axis = pyplot.subplots(figsize=(10, 7), constrained_layout=True)
    for place, row in enumerate(rows):
        for stage, begin, end in row["spans"]:
            width = max(end - begin, wall / 2000)
            axis.broken_barh([(begin, width)], (place, 0.9), color=colors[stage], linewidth=0)
    axis.legend(handles=[Patch(color=colors[stage], label=stage) for stage in stages], loc="upper left")
    axis.set(xlabel="seconds", ylabel="submissions, by when they were done", xlim=(0, wall), ylim=(0, len(rows)))
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    parser = judging.parser(__doc__)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--no-screen", dest="screen", action="store_const", const=False, help="a GPU decides it all")
    parser.add_argument("--seed", type=int, default=1)
    sys.exit(judging.run(main, parser.parse_args()))
