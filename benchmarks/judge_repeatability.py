"""How much a verdict's speed-up varies when the same submission is judged again, beside plain event timing.

    python benchmarks/judge_repeatability.py OUT [--device cuda] [--submissions 40] [--repeats 10] [--hosts idle busy]

Correct submissions to generated tasks are judged `--repeats` times in turn, without the verdict cache, on an idle host
and while every core of the host is busy. Every second task has a small size, at which a call takes a few microseconds.
On a GPU the same submissions are also timed as common harnesses do it: one ordinary process, 3 warm-ups, the mean of
100 calls between events, the same inputs, a warm cache. OUT/runs.jsonl has every speed-up, OUT/table.md the share
within 2 % and 5 % of each submission's median, OUT/spread.png the distribution.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import judging
import numpy
from rich.progress import track

from drkernel.judge import Judge
from drkernel.judge.trusted.sizes import shrink
from drkernel.tasks.generators import generate
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

SHORT_US = 50.0
WARM_UPS, CALLS = 3, 100
SMALL, ANY = shrink.Cost(2**20, 2**22, 1e9), shrink.Cost(2**40, 2**40, 1e18)


def submissions(count: int, seed: int) -> list[tuple[Task, str]]:
    """One correct submission per task; lazy, partial and fused ones in turn."""
    chosen = []
    for place, task in enumerate(generate("validation", count, seed)):
        right = judging.correct_solutions(task)
        chosen.append((smaller(task) if place % 2 else task, right[place % len(right)].source))
    return chosen


def smaller(task: Task) -> Task:
    """The task as if a small size were its published one."""
    fitted = shrink.fit(dataclasses.replace(task, small=None), SMALL, ANY)
    tree = ast.parse(fitted.source)
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(name := statement.targets[0], ast.Name):
            value = (fitted.small or {}).get(name.id)
            statement.value = statement.value if value is None else ast.Constant(value)
    return dataclasses.replace(task, id=f"{task.id}/small", source=ast.unparse(tree), small=None)


def judged(options: argparse.Namespace, host: str) -> Iterator[dict]:
    chosen = submissions(options.submissions, options.seed)
    with Judge(device=options.device, workers=options.workers, cache=False, screen=False) as judge:
        for repeat in range(options.repeats):
            pending = [judge.submit(task, source) for task, source in chosen]
            for place, future in enumerate(track(pending, f"{host} host, {repeat + 1} of {options.repeats}")):
                record = {"method": "judge", "host": host, "submission": place, "repeat": repeat}
                try:
                    verdict = future.result()
                except DrKernelError as error:
                    yield record | {"status": "unusable", "detail": str(error)}
                    continue
                us, theirs = (ms and 1e3 * ms for ms in (verdict.submission_ms, verdict.reference_ms))
                found: dict[str, Any] = {
                    "status": verdict.status,
                    "reason": verdict.reason,
                    "detail": verdict.detail[:200],
                }
                timing = verdict.evidence.get("timing", {})
                found |= {"speedup": verdict.speedup, "submission_us": us, "reference_us": theirs, "timing": timing}
                yield record | found


def naive(options: argparse.Namespace) -> Iterator[dict]:
    """Plain event timing of all submissions; must run in a process of its own."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for place, (task, source) in enumerate(submissions(options.submissions, options.seed)):
            reference = Reference(task)
            with torch.device("cuda"):
                inputs, model = reference.inputs(0), reference.model(0)
            submission = judging.load(source, Path(folder) / f"submission_{place}.py", task, reference, "cuda")
            for repeat in range(options.repeats):
                ours, theirs = mean_us(model, inputs), mean_us(submission, inputs)
                record = {
                    "method": "events",
                    "host": options.host,
                    "submission": place,
                    "repeat": repeat,
                    "status": "ok",
                }
                yield record | {"speedup": ours / theirs, "submission_us": theirs}
            del inputs, model, submission


def mean_us(model, inputs: list) -> float:
    import torch

    for _ in range(WARM_UPS):
        model(*inputs)
    total = 0.0
    for _ in range(CALLS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        model(*inputs)
        end.record()
        torch.cuda.synchronize()
        total += 1e3 * start.elapsed_time(end)
    return total / CALLS


@contextlib.contextmanager
def busy_host() -> Iterator[None]:
    """Every core has something to do."""
    spawned = multiprocessing.get_context("spawn").Process
    hogs = [spawned(target=_hog, daemon=True) for _ in os.sched_getaffinity(0)]
    for hog in hogs:
        hog.start()
    try:
        yield
    finally:
        for hog in hogs:
            hog.terminate()
            hog.join()


def _hog() -> None:
    while True:
        sum(range(100_000))


def main(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with open(options.out / "runs.jsonl", "w", encoding="utf-8") as file:
        for host in options.hosts:
            with busy_host() if host == "busy" else contextlib.nullcontext():
                for row in judged(options, host):
                    rows.append(row)
                    file.write(json.dumps(row) + "\n")
                if options.device == "cuda":
                    part = options.out / f"events_{host}.jsonl"
                    command = [sys.executable, __file__, str(part), "--naive", "--host", host]
                    command += ["--submissions", str(options.submissions), "--repeats", str(options.repeats)]
                    subprocess.run([*command, "--seed", str(options.seed)], check=True)
                    rows += [json.loads(line) for line in part.read_text().splitlines()]
                    file.write(part.read_text())
                    part.unlink()
    found = deviations(rows)
    lines = table(rows, found)
    judging.write_table(options.out, lines)
    print("\n".join(lines))
    plot(found, options.out / "spread.png")


def deviations(rows: list[dict]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """(median microseconds of the submission, relative distance from the median speed-up) by method and host."""
    runs = collections.defaultdict(list)
    for row in rows:
        if row["status"] == "ok":
            runs[row["method"], row["host"], row["submission"]].append((row["submission_us"], row["speedup"]))
    found: dict[tuple[str, str], list[tuple[float, float]]] = collections.defaultdict(list)
    for (method, host, _), values in runs.items():
        us, speedups = (numpy.array(column) for column in zip(*values, strict=True))
        off = numpy.abs(speedups / numpy.median(speedups) - 1)
        found[method, host] += [(float(numpy.median(us)), float(d)) for d in off]
    return dict(found)


def table(rows: list[dict], found: dict[tuple[str, str], list[tuple[float, float]]]) -> list[str]:
    lines = ["| method | host | submissions that take | runs | within 2 % | within 5 % | p95 distance |"]
    lines.append("|---|---|---|---|---|---|---|")
    for (method, host), values in found.items():
        us, off = (numpy.array(column) for column in zip(*values, strict=True))
        for name, mask in (("any time", us > 0), ("under 50 us", us < SHORT_US), ("50 us or more", us >= SHORT_US)):
            if mask.any():
                cells = [f"{100 * (off[mask] <= limit).mean():.1f} %" for limit in (0.02, 0.05)]
                cells.append(f"{100 * numpy.percentile(off[mask], 95):.2f} %")
                lines.append(f"| {method} | {host} | {name} | {mask.sum()} | {' | '.join(cells)} |")
    refused = collections.Counter(
        (row["host"], row["submission"], f"{row['status']} {row.get('reason', row.get('detail'))}")
        for row in rows
        if row["status"] != "ok"
    )
    lines += ["", f"Runs that were not judged right: {sum(refused.values())}"]
    return lines + [
        f"- {host} host, submission {place}: {what}, {n} times" for (host, place, what), n in refused.items()
    ]


def plot(found: dict[tuple[str, str], list[tuple[float, float]]], path: Path) -> None:
    figure, axes = judging.pyplot().subplots(1, 2, figsize=(10, 4), constrained_layout=True, sharey=True)
    for axis, short in zip(axes, (True, False), strict=True):
        for (method, host), values in found.items():
            off = sorted(100 * max(d, 1e-4) for us, d in values if (us < SHORT_US) == short)
            style = {
                "color": "tab:blue" if method == "judge" else "tab:red",
                "linestyle": "-" if host == "idle" else "--",
            }
            if off:
                axis.step(off, numpy.arange(1, len(off) + 1) / len(off), label=f"{method}, {host} host", **style)
        axis.set(xscale="log", xlabel="distance from the median speed-up, %", title="< 50 us" if short else ">= 50 us")
        for limit in (2, 5):
            axis.axvline(limit, color="grey", linewidth=0.8, linestyle=":")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("share of runs")
    axes[1].legend(fontsize=8)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    parser = judging.parser(__doc__)
    parser.add_argument("--submissions", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--hosts", nargs="+", choices=("idle", "busy"), default=["idle", "busy"])
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--naive", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--host", default="idle", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.naive:
        with open(options.out, "w", encoding="utf-8") as file:
            total = options.submissions * options.repeats
            for row in track(naive(options), f"{options.host} host, plain events", total=total):
                file.write(json.dumps(row) + "\n")
    else:
        main(options)
