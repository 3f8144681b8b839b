"""The report as one HTML file that needs nothing else: data, style and script are inside, and it asks no network.

Answers of a model are untrusted text. They lie in the page as compressed base64, everything else as JSON without `<`;
the script makes text nodes of them, never HTML, and a content security policy runs no script but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib import resources
from typing import Any

from drkernel.scaling.measures import BASELINES, THRESHOLDS
from drkernel.scaling.records import Record
from drkernel.types import KernelTime

SCRIPTS = ("dom", "data", "measures", "state", "highlight", "charts", "overview", "figures", "tasks", "turn", "main")


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
    details = [
        f'<script type="text/plain" id="task-{index}">{_packed((sources or {}).get(task), records)}</script>'
        for index, (task, records) in enumerate(tasks.items())
    ]
    style, script = _file("style.css"), "\n".join(['"use strict";', *(_file(f"{name}.js") for name in SCRIPTS)])
    parts = {
        "title": html.escape(title),
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "core": _json(core),
        "details": "\n".join(details),
    }
    page = _file("index.html").split("{{")
    return page[0] + "".join(parts[name] + rest for name, _, rest in (part.partition("}}") for part in page[1:]))


def _core(
    runs: Mapping[str, Sequence[Record]], tasks: Mapping[str, Sequence[Record]], rows: Sequence[tuple[int, Record]]
) -> dict[str, Any]:
    """What the overview is made of: one entry per turn in each column."""
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
        "seconds": [round(record.generate_s + record.judge_s, 3) for _, record in rows],
        "over": {name: [_over(record).get(name) for _, record in rows] for name in others},
    }
    return {
        "runs": [_about(name, records) for name, records in runs.items()],
        "tasks": [[task, known[0].family, known[0].level, known[0].split] for task, known in tasks.items()],
        "reasons": said,
        "thresholds": THRESHOLDS,
        "baselines": {name: BASELINES[name] for name in ("eager", *others)},
        "columns": columns,
    }


def _over(record: Record) -> dict[str, float]:
    return record.verdict.evidence.get("speedup_over", {})


def _about(name: str, records: Sequence[Record]) -> dict[str, Any]:
    first = records[0]
    devices = sorted({record.verdict.device for record in records if record.verdict.device})
    return {"name": name, "model": first.model, "strategy": first.strategy, "devices": devices}


def _packed(source: str | None, records: Sequence[Record]) -> str:
    """What a task's own view needs, as base64 of deflated JSON."""
    details = {"source": source, "turns": [_detail(record) for record in records]}
    return base64.b64encode(zlib.compress(json.dumps(_plain(details), separators=(",", ":")).encode(), 9)).decode()


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
        "profile": [_row(row) for row in verdict.profile],
        "reference_profile": [_row(row) for row in verdict.reference_profile],
    }


def _row(row: KernelTime) -> list[Any]:
    return [row.name, row.calls, round(row.microseconds, 3), row.triton]


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become words."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _json(value: Any) -> str:
    """JSON that may stand in a <script>: no `<` can end it or open a comment."""
    text = json.dumps(_plain(value), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _file(name: str) -> str:
    return (resources.files("drkernel.scaling") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a content security policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
