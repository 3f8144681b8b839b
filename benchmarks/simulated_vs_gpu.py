"""The simulated device against a real GPU: the same answers to the same tasks, timed on both.

    python benchmarks/simulated_vs_gpu.py measure TIMES.jsonl [--tasks 96] [--split validation]      on a GPU
    python benchmarks/simulated_vs_gpu.py compare TIMES.jsonl OUT [--workers 2]                      anywhere

`measure` times the right solutions (lazy, partial, fused) of generated tasks at full size against the eager reference,
TF32 off: medians of interleaved calls on a cold L2 cache. `compare` judges the same sources on the simulated device and
writes OUT/table.md (Spearman rank correlation overall and per family, agreement on Fast@1 and Fast@1.2) and
OUT/scatter.png.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy
import torch

from drkernel.coldstart.solutions import solutions
from drkernel.judge import Judge
from drkernel.tasks.generator import generate
from drkernel.tasks.module import Reference
from drkernel.types import Task

SEED = 11
THRESHOLDS = (1.0, 1.2)


def measure(out: Path, split: str, count: int, seconds: float) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    flush, started = torch.empty(64 << 20, device="cuda"), time.time()
    with open(out, "w", encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for task in generate(split, count, SEED):
            if time.time() - started > seconds:
                break
            reference = Reference(task)
            with torch.device("cuda"):
                inputs, model = reference.inputs(0), reference.model(0)
            for number, solution in enumerate(solutions(task)):
                if solution.kind in ("mistaken", "hack"):
                    continue
                answer = load(solution.source, Path(folder) / f"{task.digest}_{number}.py", task, reference)
                ours, theirs = interleaved(lambda: model(*inputs), lambda: answer(*inputs), flush)  # noqa: B023
                record = {"task": task.id, "split": split, "count": count, "family": task.family, "kind": solution.kind}
                times = {"reference_us": ours, "submission_us": theirs, "gpu": torch.cuda.get_device_name()}
                file.write(json.dumps(record | times | {"source": solution.source}) + "\n")


def load(source: str, path: Path, task: Task, reference: Reference) -> torch.nn.Module:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    args, kwargs = reference.init_args()
    torch.manual_seed(0)
    with torch.device("cuda"):
        return getattr(module, task.answer_name)(*args, **kwargs)


def interleaved(one, two, flush: torch.Tensor, repeats: int = 12) -> tuple[float, float]:
    """Median microseconds of each, in the order A B B A A B ..., every call on a cold L2 cache."""
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(-2, repeats):
        for which in (0, 1) if repeat % 2 else (1, 0):
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            (one, two)[which]()
            end.record()
            torch.cuda.synchronize()
            if repeat >= 0:
                times[which].append(start.elapsed_time(end) * 1e3)
    return statistics.median(times[0]), statistics.median(times[1])


def compare(measured: Path, out: Path, workers: int) -> None:
    rows = [json.loads(line) for line in measured.read_text().splitlines()]
    tasks = {task.id: task for task in generate(rows[0]["split"], rows[0]["count"], SEED)}
    with Judge(workers=workers) as judge:
        verdicts = [judge.submit(tasks[row["task"]], row["source"]) for row in rows]
        modelled = numpy.array([future.result().speedup or numpy.nan for future in verdicts])
    real = numpy.array([row["reference_us"] / row["submission_us"] for row in rows])
    judged = ~numpy.isnan(modelled)
    rows, real, modelled = [row for row, ok in zip(rows, judged, strict=True) if ok], real[judged], modelled[judged]
    families = numpy.array([row["family"] for row in rows])
    number = len({row["task"] for row in rows})
    lines = [f"{len(rows)} answers to {number} tasks on {rows[0]['gpu']}; {(~judged).sum()} refused by the judge", ""]
    lines += ["| family | answers | Spearman | median modelled / measured |", "|---|---|---|---|"]
    for family in ["all", *sorted(set(families))]:
        mask = families == family if family != "all" else numpy.ones(len(rows), bool)
        ratio = numpy.median(modelled[mask] / real[mask])
        lines.append(f"| {family} | {mask.sum()} | {spearman(modelled[mask], real[mask]):.2f} | {ratio:.2f} |")
    lines.append("")
    for p in THRESHOLDS:
        lines.append(f"Agreement on Fast@{p:g}: {((modelled >= p) == (real >= p)).mean():.3f}  ")
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    plot(rows, real, modelled, out / "scatter.png")


def spearman(one: numpy.ndarray, two: numpy.ndarray) -> float:
    """Rank correlation; ties share the mean of their ranks."""

    def ranks(values: numpy.ndarray) -> numpy.ndarray:
        _, index, number = numpy.unique(values.round(3), return_inverse=True, return_counts=True)
        return (number.cumsum() - (number - 1) / 2)[index]

    return float(numpy.corrcoef(ranks(one), ranks(two))[0, 1])


def plot(rows: list[dict], real: numpy.ndarray, modelled: numpy.ndarray, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 6), constrained_layout=True)
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
    one.add_argument("--tasks", type=int, default=96)
    one.add_argument("--split", default="validation")
    one.add_argument("--seconds", type=float, default=240)
    two.add_argument("times", type=Path)
    two.add_argument("out", type=Path)
    two.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.command == "measure":
        measure(options.times, options.split, options.tasks, options.seconds)
    else:
        compare(options.times, options.out, options.workers)


if __name__ == "__main__":
    main()
