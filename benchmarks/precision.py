"""What each precision of a task allows and earns: twelve kernels in fp32, TF32 and bf16 under ieee, tf32 and low.

    python benchmarks/precision.py OUT [--device cuda] [--workers N] [--only square ...] [--limit-s 95] [--timeout 20]

OUT/rows.jsonl has a row for each verdict as soon as it is reached: status, reason, `right_in`, speed-up over eager
PyTorch in that precision (without TF32 for ieee, with it else). OUT/table.md has a row for each kernel and form, and a
column for each precision. After --limit-s what has not been judged is left out. Exit code 1 if a verdict is not the
expected one: a form is right where the precision allows it, else wrong, with the name of what it is right in.

On a GPU nothing is screened, so that the GPU decides. On the simulated device PyTorch itself never multiplies in TF32.
So kernels behind cuBLAS and cuDNN are right there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import Future, as_completed
from typing import Any

import judging
from precision_kernels import FORMS, KERNELS, Kernel
from rich.progress import track

from drkernel.judge import Judge
from drkernel.tasks import with_precision
from drkernel.types import DrKernelError, Task, Verdict

PRECISIONS = ("ieee", "tf32", "low")
ALLOWED = {"ieee": ("ieee",), "tf32": ("ieee", "tf32"), "low": FORMS}
"""The forms that are right, by precision."""
RIGHT_IN = {"tf32": ("TF32",), "bf16": ("bf16",)}
Row = dict[str, Any]


def main(options: argparse.Namespace) -> int:
    kernels = [kernel for kernel in KERNELS if not options.only or kernel.name in options.only]
    if not kernels:
        raise DrKernelError(f"--only: none of {', '.join(kernel.name for kernel in KERNELS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    began = time.monotonic()
    with (
        open(options.out / "rows.jsonl", "w", encoding="utf-8") as file,
        Judge(device=options.device, workers=options.workers, timeout_s=options.timeout, screen=False) as judge,
    ):
        pending = submitted(judge, kernels, options.device)
        try:
            left = max(0.0, options.limit_s - (time.monotonic() - began))
            for future in track(as_completed(pending, left), "judging", len(pending)):
                rows.append(row_of(*pending[future], future, options.device))
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
        except TimeoutError:
            print(f"{len(pending) - len(rows)} of {len(pending)} were not judged within {options.limit_s:g} s")
    judging.write_table(options.out, table(rows, len(pending), options.device))
    print((options.out / "table.md").read_text())
    return int(any(not row["as_expected"] for row in rows))


def submitted(judge: Judge, kernels: list[Kernel], device: str) -> dict[Future[Verdict], tuple[Kernel, str, str]]:
    """The verdicts to come: kernel, form and precision of each."""
    pending = {}
    for kernel in kernels:
        for precision in PRECISIONS:
            task = with_precision(Task(f"precision/{kernel.name}", kernel.task()), precision)
            for form in FORMS:
                pending[judge.submit(task, kernel.submission(form, device))] = kernel, form, precision
    return pending


def row_of(kernel: Kernel, form: str, precision: str, future: Future[Verdict], device: str) -> Row:
    where = {"kernel": kernel.name, "form": form, "precision": precision}
    try:
        verdict = future.result()
    except DrKernelError as error:
        return where | {"status": "unusable task", "detail": str(error), "as_expected": False}
    right_in = verdict.evidence.get("right_in", "")
    allowed = form in ALLOWED[precision] or (device == "simulated" and kernel.library and form == "tf32")
    refused = verdict.status == "incorrect" and right_in in RIGHT_IN.get(form, ())
    times = {key: getattr(verdict, key) for key in ("speedup", "coverage", "reference_ms", "submission_ms", "seconds")}
    found = {"status": verdict.status, "reason": verdict.reason, "right_in": right_in, "detail": verdict.detail}
    return where | found | times | {"as_expected": verdict.ok if allowed else refused, "device": verdict.device}


def table(rows: list[Row], number: int, device: str) -> list[str]:
    """One line per kernel and form; a cell says whether it is right and how fast, or what it is right in instead."""
    bad = sum(not row["as_expected"] for row in rows)
    lines = [f"{len(rows)} of {number} verdicts on {rows[0].get('device') if rows else device}, {bad} not as expected."]
    lines += ["A number is the speed-up over eager PyTorch in that precision. Bold: not as expected.", ""]
    lines += [f"| kernel | multiplies in | {' | '.join(PRECISIONS)} |", "|---|---|" + "---|" * len(PRECISIONS)]
    found = {(row["kernel"], row["form"], row["precision"]): row for row in rows}
    for kernel in KERNELS:
        for form in FORMS:
            cells = [cell(found.get((kernel.name, form, precision))) for precision in PRECISIONS]
            if any(cells):
                lines.append(f"| {kernel.name} | {form} | {' | '.join(cells)} |")
    return lines


def cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row["status"] == "ok":
        text = f"{row['speedup']:.2f}"
    elif row.get("right_in"):
        text = f"right in {row['right_in']}"
    else:
        text = f"{row['status']} {row.get('reason', '')}".strip()
    return text if row["as_expected"] else f"**{text}**"


if __name__ == "__main__":
    parser = judging.parser(__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="names of kernels")
    parser.add_argument("--limit-s", type=float, default=95.0)
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds for one call of a submission")
    sys.exit(judging.run(main, parser.parse_args()))
