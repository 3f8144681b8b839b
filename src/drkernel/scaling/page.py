"""The report as one HTML file that needs nothing else: data, style and script are inside, and it asks no network.

What a model wrote is untrusted text. It lies in the page as compressed base64, everything else as JSON without `<`. The
script makes text nodes of it, never HTML, and a content security policy runs no script but the page's own.

The charts are drawn by page/charts.js: 8 kB. Libraries that could be embedded are uPlot (51 kB, a canvas, with bands,
labels and dark colours still to be written), Chart.js (210 kB), Observable Plot with d3 (490 kB), ECharts (1.1 MB) and
Plotly (1.2 MB). None comes as a small Python package, so a minified copy would have to be kept in this repository.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

import torch

from drkernel.scaling.measures import BASELINES, THRESHOLDS
from drkernel.scaling.page_figures import SPEEDUPS, figures
from drkernel.scaling.records import Record
from drkernel.scaling.trials import Trials, aligned
from drkernel.training import page
from drkernel.types import KernelTime

T = TypeVar("T")
PACKAGE = "drkernel.scaling"
SCRIPTS = ("dom", "parts", "data", "state", "highlight", "charts", "overview", "figures", "tasks", "turn", "main")


def render(
    runs: Mapping[str, Sequence[Record]],
    title: str,
    sources: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The page of these runs.

    Args:
        runs: name -> records; the first one is what the others are compared with.
        sources: the reference module of each task, where it is known.
        notes: lines under the title.
    """
    numbers = {name: index for index, name in enumerate(runs)}
    rows = sorted(
        ((record.task, numbers[name], record.trial, record.call, record) for name in runs for record in runs[name]),
        key=lambda row: row[:4],
    )
    tasks: dict[str, list[Record]] = {}
    for task, _, _, _, record in rows:
        tasks.setdefault(task, []).append(record)
    ordered = [(run, record) for _, run, _, _, record in rows]
    made = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    core = {"title": title, "made": made, "notes": notes, **_core(runs, tasks, ordered)}
    trials = aligned({name: Trials.of(records) for name, records in runs.items()})
    details = [page.hidden("figures", _in_one_thread(lambda: figures(trials, runs, list(core["baselines"]))))]
    details += [
        page.hidden(f"task-{index}", _details((sources or {}).get(task), records))
        for index, (task, records) in enumerate(tasks.items())
    ]
    scripts = [page.read(PACKAGE, f"{name}.js") for name in SCRIPTS]
    return page.fill(
        title, page.read(PACKAGE, "style.css"), scripts, core, details, "table.md next to it has the numbers"
    )


def _core(
    runs: Mapping[str, Sequence[Record]], tasks: Mapping[str, Sequence[Record]], rows: Sequence[tuple[int, Record]]
) -> dict[str, Any]:
    """What the overview is made of: one entry per turn in each column."""
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for run, record in rows:
        found[record.task, run].append(record)
    places = {task: index for index, task in enumerate(tasks)}
    said = sorted({(record.verdict.status, record.verdict.reason) for _, record in rows})
    word = {pair: index for index, pair in enumerate(said)}
    others = [name for name in BASELINES if any(name in _over(record) for _, record in rows)]
    columns = {
        "task": [places[record.task] for _, record in rows],
        "run": [run for run, _ in rows],
        **{
            name: [getattr(record, name) for _, record in rows] for name in ("trial", "chain", "turn", "call", "tokens")
        },
        "reason": [word[record.verdict.status, record.verdict.reason] for _, record in rows],
        "speedup": [record.verdict.speedup for _, record in rows],
        "over": {name: [_over(record).get(name) for _, record in rows] for name in others},
    }
    return {
        "runs": [_about(name, records) for name, records in runs.items()],
        "tasks": [[task, known[0].family, known[0].level, known[0].split] for task, known in tasks.items()],
        "results": [[_results(found[task, run]) for run in range(len(runs))] for task in tasks],
        "reasons": said,
        "thresholds": THRESHOLDS,
        "speedups": SPEEDUPS,
        "baselines": {name: BASELINES[name] for name in ("eager", *others)},
        "columns": columns,
    }


def _over(record: Record) -> dict[str, float]:
    return record.verdict.evidence.get("speedup_over", {})


def _about(name: str, records: Sequence[Record]) -> dict[str, Any]:
    first = records[0]
    devices = sorted({record.verdict.device for record in records if record.verdict.device})
    return {"name": name, "model": first.model, "strategy": first.strategy, "devices": devices}


def _in_one_thread(work: Callable[[], T]) -> T:
    """Thousands of small operations: where the processors are busy, several threads mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return work()
    finally:
        torch.set_num_threads(threads)


def _results(records: Sequence[Record]) -> dict[str, Any] | None:
    """How one run did on one task: its best speed-up, how often each status was given, and the most frequent one."""
    counts = Counter(record.verdict.status for record in records)
    if not counts:
        return None
    best = max((record.verdict.speedup or 0.0 for record in records if record.verdict.ok), default=None)
    return {"best": best, "counts": counts, "usual": counts.most_common(1)[0][0]}


def _details(source: str | None, records: Sequence[Record]) -> dict[str, Any]:
    """What a task's own view needs."""
    return {"source": source, "turns": [_detail(record) for record in records]}


def _detail(record: Record) -> dict[str, Any]:
    verdict = record.verdict
    kept = ("detail", "coverage", "reference_ms", "submission_ms", "device", "general", "lazy", "evidence")
    return {name: getattr(verdict, name) for name in kept} | {
        "source": record.source,
        "shown": record.shown,
        "prompt": record.prompt_tokens,
        "finished": record.finished,
        "generate_s": round(record.generate_s, 3),
        "judge_s": round(record.judge_s, 3),
        "profile": _profile(verdict.profile),
        "reference_profile": _profile(verdict.reference_profile),
    }


def _profile(rows: Sequence[KernelTime]) -> dict[str, Any]:
    """The total in microseconds, and [name, calls, microseconds, own Triton kernel] of each row."""
    each = [[row.name, row.calls, round(row.microseconds, 3), row.triton] for row in rows]
    return {"total": sum(row[2] for row in each), "rows": each}
