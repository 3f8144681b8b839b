"""Several seeds of one run as one table and one plot.

    python benchmarks/seeds.py OUT RUN_DIR [RUN_DIR ...]

OUT/<run folder's name>/ gets each run's metrics.jsonl, report.json and config.yaml; OUT/table.md has before, after and
difference per seed, with 95 % intervals over tasks; OUT/training.png shows every seed and their mean.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import matplotlib
import numpy

from drkernel.objective.intervals import Estimate
from drkernel.training.report import SHOWN

matplotlib.use("Agg")
from matplotlib import pyplot

CURVES = ("reward", "correct", "fast@1.2", "lazy", "hack", "entropy", "grad_norm", "speedup")


def main(out: Path, runs: list[Path]) -> None:
    for run in runs:
        (out / run.name).mkdir(parents=True, exist_ok=True)
        for name in ("metrics.jsonl", "report.json", "config.yaml"):
            shutil.copyfile(run / name, out / run.name / name)
    reports = {run.name: json.loads((run / "report.json").read_text()) for run in runs}
    (out / "table.md").write_text(table(reports))
    plot([[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in runs], out)


def table(reports: dict[str, dict]) -> str:
    lines = ["| | run | before | after | difference |", "|---|---|---|---|---|"]
    for name in SHOWN:
        for run, report in reports.items():
            cells = [str(Estimate(**report[side][name])) for side in ("before", "after", "difference")]
            lines.append(f"| {name} | {run} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot(metrics: list[list[dict]], out: Path) -> None:
    figure, axes = pyplot.subplots(2, 4, figsize=(14, 6), constrained_layout=True)
    for axis, name in zip(axes.flat, CURVES, strict=True):
        curves = numpy.array([[step[name] for step in run] for run in metrics])
        steps = numpy.arange(1, curves.shape[1] + 1)
        axis.plot(steps, curves.T, color="tab:blue", alpha=0.3, linewidth=1)
        axis.plot(steps, curves.mean(axis=0), color="tab:blue", linewidth=2)
        axis.set_title(name, fontsize=10)
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    figure.suptitle(f"training tasks, {len(metrics)} seeds and their mean")
    figure.savefig(out / "training.png", dpi=110)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
