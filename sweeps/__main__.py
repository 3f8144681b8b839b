"""Where the runs of a sweep stand, and what came of those that are done.

    python -m sweeps outputs/ablation                   state, table; writes outputs/ablation/report/
    python -m sweeps outputs/ablation --baseline arm=grpo --out results/ablation

report/ has table.md, steps.png (curves against steps) and time.png (against hours of training). It works on
any folder of runs, with or without Slurm, while they run and afterwards.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from drkernel.types import DrKernelError
from sweeps import curves, state, table

COLOURS = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "held": "red",
    "requeued": "yellow",
    "stopped": "yellow",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m sweeps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--baseline", help="setting that the others are compared with; without it the first one")
    parser.add_argument("--out", type=Path, help="where the report goes; without it FOLDER/report")
    options = parser.parse_args()
    runs = state.look(options.folder)
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    if not runs:
        parser.error(f"{options.folder}: found no runs; expected the folder of a sweep, as train.py -m prints it")
    show(runs, console)
    out = options.out or options.folder / "report"
    out.mkdir(parents=True, exist_ok=True)
    try:
        text = table.markdown(runs, options.baseline)
    except DrKernelError as error:
        parser.exit(2, f"error: {error}\n")
    (out / "table.md").write_text(f"# {options.folder.name}\n\n{text}\n", encoding="utf-8")
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    curves.plot(runs, out)
    console.print(f"{out}: table.md, steps.png, time.png")


def show(runs: list[state.RunState], console: Console) -> None:
    """One line per run, and the counts."""
    console.print(f"{len(runs)} runs: {state.counts(runs)}")
    shown = Table(box=None, pad_edge=False)
    for column in ("setting", "seed", "state", "step", "left", "starts", "job", ""):
        shown.add_column(column, overflow="fold")
    for run in runs:
        colour = COLOURS.get(run.state, "default")
        step = f"{run.step}/{run.steps}" if run.steps else str(run.step or "")
        cells = (run.setting, run.seed, f"[{colour}]{run.state}[/]", step, run.left, str(run.starts or ""), run.job)
        shown.add_row(*cells, run.note)
    console.print(shown)


if __name__ == "__main__":
    main()
