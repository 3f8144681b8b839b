"""The simulated device against a real GPU: the same submissions to the same tasks, timed on both.

    python benchmarks/simulated_vs_gpu.py measure TIMES.jsonl [--tasks 120] [--split validation]     on a GPU
    python benchmarks/simulated_vs_gpu.py compare TIMES.jsonl OUT [--traces CACHE]  anywhere

`measure` has correct solutions (lazy, partial, fused) of generated tasks judged on the GPU. `compare` runs the same
sources once each on the simulated device and estimates their times from what they did. It writes OUT/scatter.png and
OUT/table.md: rank correlation, agreement on Fast@1 and Fast@1.2, and the worst outliers, per half of the tasks, kind
and family. `--traces` keeps what the runs did, so that another cost model takes seconds; delete the file when the
counters change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from pathlib import Path

import judging
import numpy
import torch
from rich.progress import track

from drkernel.judge import Judge
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.devices.simulated import floor
from drkernel.judge.devices.simulated.gpus import GPUS, Gpu
from drkernel.judge.devices.simulated.rescale import scale_of
from drkernel.judge.devices.simulated.roofline import estimate_times
from drkernel.judge.trusted.sizes import shrink
from drkernel.judge.untrusted.simulated.device import install, record
from drkernel.tasks.generators import generate
from drkernel.tasks.module import Reference
from drkernel.types import Task

SEED = 11
THRESHOLDS = (1.0, 1.2)
WORST = 15
TIE = 0.01
"""Measured speed-ups closer to 1 than this are ties: on which side they fall is noise."""


def measure(out: Path, split: str, count: int, workers: int) -> None:
    chosen = [(task, solution) for task in generate(split, count, SEED) for solution in judging.correct_solutions(task)]
    with Judge(device="cuda", workers=workers) as judge, open(out, "w", encoding="utf-8") as file:
        pending = [judge.submit(task, solution.source) for task, solution in chosen]
        for (task, solution), future in zip(chosen, track(pending, "measuring"), strict=True):
            verdict = future.result()
            record = {"task": task.id, "split": split, "count": count, "family": task.family, "kind": solution.kind}
            record |= {"gpu": verdict.device, "status": verdict.status, "reason": verdict.reason}
            if verdict.speedup is not None:
                assert verdict.reference_ms is not None and verdict.submission_ms is not None
                record |= {"reference_us": 1e3 * verdict.reference_ms, "submission_us": 1e3 * verdict.submission_ms}
                record |= {"speedup": verdict.evidence["timing"]["speedup"], "coverage": verdict.coverage}
            file.write(json.dumps(record | {"source": solution.source}) + "\n")


def compare(measured: Path, out: Path, traces: Path | None) -> None:
    every = [json.loads(line) for line in measured.read_text().splitlines()]
    rows = [row for row in every if "submission_us" in row]
    gpu = next(gpu for name, gpu in GPUS.items() if name in rows[0]["gpu"])
    for row, times in zip(rows, modelled_times(rows, gpu, traces), strict=True):
        row["modelled_us"] = times
    modelled = numpy.array([row["modelled_us"][0] / row["modelled_us"][1] for row in rows])
    real = numpy.array([row["reference_us"] / row["submission_us"] for row in rows])
    tasks = len({row["task"] for row in rows})
    lines = [
        f"{len(rows)} submissions to {tasks} tasks on {rows[0]['gpu']}; {len(every) - len(rows)} refused there",
        "",
    ]
    lines += tables(rows, modelled, real) + outliers(rows, modelled, real)
    judging.write_table(out, lines)
    print("\n".join(lines))
    plot(rows, real, modelled, out / "scatter.png")


def modelled_times(rows: list[dict], gpu: Gpu, cache: Path | None) -> list[tuple[float, float]]:
    """Modelled microseconds of the reference and of the submission, for each row."""
    install(fake_cuda=True)
    known = json.loads(cache.read_text()) if cache and cache.exists() else {}
    tasks = {task.id: task for task in generate(rows[0]["split"], rows[0]["count"], SEED)}
    times = []
    for row in rows:
        task = shrink.fit(tasks[row["task"]])
        reference, ours = (trace_of(task, source, known) for source in (None, row["source"]))
        by_hand = floor.products_by_hand(reference, ours, scale_of(task))
        pair = [
            sum(time.microseconds for time in estimate_times(trace, gpu, scale_of(task), by_hand))
            for trace in (reference, ours)
        ]
        times.append((pair[0], pair[1]))
    if cache:
        cache.write_text(json.dumps(known))
    return times


def trace_of(task: Task, source: str | None, known: dict[str, str]) -> OpTrace:
    """What one forward of a submission (None: of the reference) does at the small size; looked up in `known` first."""
    key = hashlib.sha256(f"{task.digest} {source}".encode()).hexdigest()[:16]
    if key not in known:
        reference = Reference(task, task.small)
        with tempfile.TemporaryDirectory() as folder:
            if source is None:
                model = reference.model(0)
            else:
                model = judging.load(source, Path(folder) / f"submission_{key}.py", task, reference)
            inputs = reference.inputs(0)
            with torch.no_grad(), record() as trace:
                model.eval()(*inputs)
        known[key] = trace.to_json()
    return OpTrace.from_json(known[key])


def half_of(row: dict) -> str:
    """The half of the tasks that the constants may be tuned on, or the one that they may not."""
    return "tuned" if int(hashlib.sha256(row["task"].encode()).hexdigest(), 16) % 2 == 0 else "held out"


def tables(rows: list[dict], modelled: numpy.ndarray, real: numpy.ndarray) -> list[str]:
    """Agreement over all submissions, per half of the tasks, per kind and per family."""
    columns = ["submissions", "Spearman", "median modelled / measured", "median error"]
    columns += [f"Fast@{p:g}" for p in THRESHOLDS] + ["Fast@1 without ties"]
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for groups in (lambda row: "all", half_of, lambda row: row["kind"], lambda row: row["family"]):
        names = numpy.array([groups(row) for row in rows])
        for name in sorted(set(names)):
            values = agreement(modelled[names == name], real[names == name])
            lines.append(f"| {name} | {(names == name).sum()} | " + " | ".join(f"{v:.3f}" for v in values) + " |")
    return [*lines, "", f"Ties: measured speed-ups within {TIE:.0%} of 1."]


def agreement(modelled: numpy.ndarray, real: numpy.ndarray) -> list[float]:
    ratio = modelled / real
    apart = abs(real - 1) > TIE
    alike = [((modelled >= p) == (real >= p)) for p in THRESHOLDS]
    error = numpy.exp(numpy.median(abs(numpy.log(ratio)))) - 1
    plain = alike[0][apart].mean() if apart.any() else numpy.nan
    return [spearman(modelled, real), numpy.median(ratio), error, *(a.mean() for a in alike), plain]


def outliers(rows: list[dict], modelled: numpy.ndarray, real: numpy.ndarray) -> list[str]:
    lines = [
        "",
        "| off by | kind | family | modelled | measured | reference us | submission us | task |",
        "|---" * 8 + "|",
    ]
    off = modelled / real
    for i in numpy.argsort(-abs(numpy.log(off)))[:WORST]:
        row, (ours, theirs) = rows[i], rows[i]["modelled_us"]
        times = f"{ours:.0f} for {row['reference_us']:.0f} | {theirs:.0f} for {row['submission_us']:.0f}"
        speedups = f"{off[i]:.2f} | {row['kind']} | {row['family']} | {modelled[i]:.2f} | {real[i]:.2f}"
        lines.append(f"| {speedups} | {times} | {row['task']} |")
    return lines


def spearman(one: numpy.ndarray, two: numpy.ndarray) -> float:
    """Rank correlation; ties share the mean of their ranks."""

    def ranks(values: numpy.ndarray) -> numpy.ndarray:
        _, index, number = numpy.unique(values.round(3), return_inverse=True, return_counts=True)
        return (number.cumsum() - (number - 1) / 2)[index]

    return float(numpy.corrcoef(ranks(one), ranks(two))[0, 1])


def plot(rows: list[dict], real: numpy.ndarray, modelled: numpy.ndarray, path: Path) -> None:
    figure, axis = judging.pyplot().subplots(figsize=(6, 6), constrained_layout=True)
    for kind in ("lazy", "partial", "fused"):
        mask = numpy.array([row["kind"] == kind for row in rows])
        axis.scatter(real[mask], modelled[mask], s=14, alpha=0.6, label=kind)
    ends = [min(real.min(), modelled.min()), max(real.max(), modelled.max())]
    axis.plot(ends, ends, color="grey", linewidth=1)
    axis.set(xscale="log", yscale="log", xlabel="speed-up measured", ylabel="speed-up modelled", title=rows[0]["gpu"])
    axis.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one, two = commands.add_parser("measure"), commands.add_parser("compare")
    one.add_argument("times", type=Path)
    one.add_argument("--tasks", type=int, default=120)
    one.add_argument("--split", default="validation")
    one.add_argument("--workers", type=int, default=10)
    two.add_argument("times", type=Path)
    two.add_argument("out", type=Path)
    two.add_argument("--traces", type=Path)
    options = parser.parse_args()
    if options.command == "measure":
        measure(options.times, options.split, options.tasks, options.workers)
    else:
        compare(options.times, options.out, options.traces)


if __name__ == "__main__":
    main()
