"""How the judge copes with KernelBench's sizes: seconds to a verdict, verdicts and GPU memory, for each published size.

    python benchmarks/kernelbench_sizes.py OUT [--device cuda] [--workers N] [--only NAME ...] [--limit-s 3000]
                                           [--timeout 60] [--rounds alone together] [--together 8] [--memory-gib 70]

Each task is judged alone, one after the other: an honest answer, which also waits for the preparation of the task, and
then a wrong one. After that all are judged again, eight at a time, by a new judge. OUT/rows.jsonl has one row for each
task as soon as it is finished, OUT/table.md the same with medians and maxima at the top. After --limit-s no further
task begins; what runs is waited for. The exit code is 1 if a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TextIO

import judging
from published_sizes import Entry, chosen

from drkernel.judge import Judge
from drkernel.types import DrKernelError, Verdict

Row = dict[str, Any]
ANSWERS = ("honest", "wrong")
ROUNDS = ("alone", "together")


class Memory:
    """The memory in use on all visible GPUs together, in GiB, sampled in a thread. Use as a context manager."""

    def __init__(self, every_s: float = 0.1):
        self.every_s = every_s
        self.peak: float | None = None
        """Since the last call of `restart`; None where there is no GPU."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Memory:
        if shutil.which("nvidia-smi"):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def restart(self) -> None:
        self.peak = None

    def _sample(self) -> None:
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self._ended.wait(self.every_s):
            found = subprocess.run(command, capture_output=True, text=True)
            numbers = [int(line) for line in found.stdout.split() if line.isdigit()]
            if found.returncode == 0 and numbers:
                self.peak = max(self.peak or 0.0, sum(numbers) / 1024)


class Submission:
    """One answer on its way to a verdict."""

    def __init__(self, judge: Judge, entry: Entry, kind: str):
        self.entry, self.kind = entry, kind
        self.start, self.seconds = time.monotonic(), 0.0
        self.done = threading.Event()
        self.future: Future[Verdict] = judge.submit(entry.task, getattr(entry, kind))
        self.future.add_done_callback(self._end)

    def _end(self, _: Future[Verdict]) -> None:
        self.seconds = time.monotonic() - self.start
        self.done.set()

    def result(self) -> Row:
        """What is recorded of it, once there is a verdict; a task that cannot be prepared has none."""
        self.done.wait()
        row: Row = {"seconds": round(self.seconds, 3)}
        try:
            verdict = self.future.result()
        except DrKernelError as error:
            return row | {"status": "refused", "reason": "", "detail": str(error)}
        return row | {
            "status": verdict.status,
            "reason": verdict.reason,
            "detail": verdict.detail,
            "speedup": verdict.speedup,
            "coverage": verdict.coverage,
            "cost": _cost(verdict.evidence.get("cost", {})),
            "timing": verdict.evidence.get("timing"),
            "judged_on": verdict.device,
        }


def _cost(cost: Row) -> Row:
    """What a verdict has cost, with the milliseconds of each stage that was waited for."""
    spans = {f"{name} span": round(1e3 * (end - start)) for name, start, end in cost.get("spans", [])}
    return {key: value for key, value in cost.items() if key != "spans"} | spans


def main(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    end = time.monotonic() + options.limit_s
    with open(options.out / "rows.jsonl", "w", encoding="utf-8") as file:
        for name in options.rounds:
            judged = alone if name == "alone" else together
            with Memory() as memory, Judge(**settings(options)) as judge:
                for row in judged(judge, chosen(options.only), options, memory, end):
                    rows.append({"round": name} | row)
                    record(file, rows[-1])
                    judging.write_table(options.out, table(rows, options))
    print("\n".join(table(rows, options)[: 4 + len(options.rounds)]))
    return int(any(not row["expected"] for row in rows))


def settings(options: argparse.Namespace) -> dict[str, Any]:
    given = {"device": options.device, "workers": options.workers, "timeout_s": options.timeout, "cache": False}
    return given | ({"memory_gib": options.memory_gib} if options.memory_gib else {})


def alone(judge: Judge, entries: list[Entry], options: argparse.Namespace, memory: Memory, end: float) -> Iterator[Row]:
    """One submission at a time: the honest one first, with which the task is prepared."""
    for entry in entries:
        if time.monotonic() > end:
            return
        memory.restart()
        yield row_of(entry, {kind: Submission(judge, entry, kind).result() for kind in ANSWERS}, memory.peak)


def together(
    judge: Judge, entries: list[Entry], options: argparse.Namespace, memory: Memory, end: float
) -> Iterator[Row]:
    """Keeps options.together submissions on their way. A row's memory is the peak since the last row."""
    waiting = deque((entry, kind) for entry in entries for kind in ANSWERS)
    running: list[Submission] = []
    found: dict[str, Row] = {}
    memory.restart()
    while running or waiting:
        while waiting and len(running) < options.together:
            entry, kind = waiting.popleft()
            running.append(Submission(judge, entry, kind))
        for ready in take(running, lambda one: one.done.is_set()):
            answers = found.setdefault(ready.entry.name, {})
            answers[ready.kind] = ready.result()
            if len(answers) == len(ANSWERS):
                yield row_of(ready.entry, answers, memory.peak)
                memory.restart()
        if time.monotonic() > end:  # entries whose first answer is on its way are finished
            begun = {one.entry.name for one in running} | {name for name, row in found.items() if len(row) == 1}
            waiting = deque(pair for pair in waiting if pair[0].name in begun)
        time.sleep(0.01)


def take(items: list[Submission], fits: Callable[[Submission], bool]) -> list[Submission]:
    """Removes and returns the items that fit."""
    taken = [item for item in items if fits(item)]
    items[:] = [item for item in items if item not in taken]
    return taken


def row_of(entry: Entry, answers: Row, peak: float | None) -> Row:
    expected = answers["honest"]["status"] == "ok" and answers["wrong"]["status"] == "incorrect"
    named = {"name": entry.name, "level": entry.level, "gib": entry.gib, "peak_gib": peak and round(peak, 2)}
    return named | {"expected": expected} | answers


def record(file: TextIO, row: Row) -> None:
    file.write(json.dumps(row) + "\n")
    file.flush()


def table(rows: list[Row], options: argparse.Namespace) -> list[str]:
    """A line for each round, then one for each row."""
    lines = ["| round | tasks | as expected | honest: seconds, median and most | wrong | most GPU memory |"]
    lines.append("|---|---|---|---|---|---|")
    for name in ROUNDS:
        if found := [row for row in rows if row["round"] == name]:
            lines.append(summary(name, found, options))
    lines += ["", "| round | task | level | GiB | honest | s | speed-up | wrong | s | peak GiB |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    return lines + [line_of(row) for row in rows]


def summary(name: str, rows: list[Row], options: argparse.Namespace) -> str:
    seconds = {kind: [row[kind]["seconds"] for row in rows] for kind in ANSWERS}
    spread = [f"{statistics.median(found):.2f}, {max(found):.2f}" for found in seconds.values()]
    title = name if name == "alone" else f"{options.together} at a time"
    fine = sum(row["expected"] for row in rows)
    peak = max((row["peak_gib"] for row in rows if row["peak_gib"] is not None), default=None)
    return f"| {title} | {len(rows)} | {fine} | {spread[0]} | {spread[1]} | {peak or ''} |"


def line_of(row: Row) -> str:
    texts = []
    for kind, right in zip(ANSWERS, ("ok", "incorrect"), strict=True):
        answer = row[kind]
        text = f"{answer['status']} {answer['reason']}".strip()
        texts.append(text if answer["status"] == right else f"**{text}** {answer['detail'][:120]}".replace("|", "/"))
    honest, wrong = row["honest"], row["wrong"]
    speedup = f"{honest['speedup']:.3g}" if honest.get("speedup") is not None else ""
    return (
        f"| {row['round']} | {row['name']} | {row['level']} | {row['gib']:g} | {texts[0]} | {honest['seconds']:.2f} | "
        f"{speedup} | {texts[1]} | {wrong['seconds']:.2f} | {row['peak_gib'] or ''} |"
    ).replace("\n", " ")


if __name__ == "__main__":
    parser = judging.parser(__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="tasks whose names start so")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="seconds after which no task begins")
    parser.add_argument(
        "--timeout", type=float, default=None, help="the judge's timeout_s; its own default if left out"
    )
    parser.add_argument("--together", type=int, default=8, help="submissions at a time in the second round")
    parser.add_argument("--memory-gib", type=float, help="the judge's memory_gib")
    parser.add_argument("--rounds", nargs="+", choices=ROUNDS, default=ROUNDS, help="which of the two rounds")
    sys.exit(main(parser.parse_args()))
