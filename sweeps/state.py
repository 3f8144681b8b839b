"""The state of every run of a sweep, from the run folders and, where there is Slurm, from its queue."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from drkernel.config.keys import MAY_CHANGE
from drkernel.slurm import queue

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast one, where PyYAML was built with it: a sweep has many runs."""
ORDER = ("failed", "held", "stopped", "pending", "requeued", "running", "done")


@dataclass
class RunState:
    """One run. state: pending, running, requeued (waits to go on), held (until the sweep is submitted again), done,
    failed (will not go on), stopped (might)."""

    folder: Path
    overrides: list[str]
    state: str = "stopped"
    step: int = 0
    steps: int | None = None
    left: str = ""
    """Time that the remaining steps take at the pace of the last ones."""
    starts: int = 0
    job: str = ""
    note: str = ""
    setting: str = ""
    seed: str = ""
    metrics: list[dict[str, Any]] = field(default_factory=list)
    report: dict[str, Any] | None = None
    reward: dict[str, Any] | None = None
    """What its answers earned, from its configuration."""


def look(sweep: Path) -> list[RunState]:
    """All runs below `sweep`, submitted or started, in the order of their submission."""
    here, submitted = queue.queued(), queue.submitted(sweep)
    known = {s.run_dir.resolve() for s in submitted}
    others = [path.parent for path in sorted(sweep.glob("*/config.yaml")) if path.parent.resolve() not in known]
    runs = [_look_at(s.run_dir, s, here) for s in submitted] + [_look_at(folder, None, here) for folder in others]
    _name(runs)
    return runs


def counts(runs: list[RunState]) -> str:
    """
    >>> counts([RunState(Path("a"), [], "done"), RunState(Path("b"), [], "failed"), RunState(Path("c"), [], "done")])
    '2 done, 1 failed'
    """
    found = Counter(run.state for run in runs)
    return ", ".join(f"{found[state]} {state}" for state in reversed(ORDER) if found[state])


def _look_at(folder: Path, submitted: queue.Submitted | None, here: dict[str, queue.Queued] | None) -> RunState:
    run = RunState(folder, list(submitted.overrides) if submitted else _split(folder.name))
    run.metrics, run.starts = _lines(folder / "metrics.jsonl"), len(_lines(folder / "starts.jsonl"))
    written = folder / "config.yaml"
    config = yaml.load(written.read_text(), _LOADER) if written.exists() else {}
    run.step, run.steps = (run.metrics[-1]["step"] if run.metrics else 0), config.get("trainer", {}).get("steps")
    if "scaling" in config:  # a study has no steps
        run.steps = None
    run.reward = config.get("reward")
    run.report = _json(folder / "report.json")
    run.left = _left(run)
    run.job = submitted.jobs[-1] if submitted else ""
    entry = next((here[job] for job in reversed(submitted.jobs) if job in here), None) if submitted and here else None
    jobs = folder.parent / queue.FOLDER
    failed = _json(jobs / run.job / queue.FAILED) if run.job else None
    if entry:
        run.job = entry.job
        run.state, run.note = _queued_state(entry, run.starts)
    elif (run.report and (run.report.get("step") == run.steps or run.report.get("ended_early"))) or (
        folder.exists() and (queue.succeeded(jobs / run.job) or _reported(folder))
    ):
        run.state, run.left = "done", ""
    elif failed:
        run.state, run.note, run.left = "failed", failed["reason"], ""
    elif submitted and here is not None:
        run.state, run.note, run.left = "failed", _vanished(jobs / run.job, run.job), ""
    else:
        run.state, run.note = ("stopped" if run.starts else "pending"), "not in the queue of this machine"
    return run


def _reported(folder: Path) -> bool:
    """Whether a study has its report, and no turn since."""
    report, results = folder / "report" / "table.md", folder / "results.jsonl"
    return report.exists() and results.exists() and report.stat().st_mtime >= results.stat().st_mtime


def _queued_state(entry: queue.Queued, starts: int) -> tuple[str, str]:
    if entry.state in ("RUNNING", "COMPLETING"):
        return "running", f"on {entry.nodes}, limit in {entry.left}"
    if entry.held:
        return "held", f"{entry.reason}: submit the sweep again, or scontrol release {entry.job}"
    return ("requeued" if starts else "pending"), f"{entry.state.lower()}: {entry.reason}"


def _vanished(folder: Path, job: str) -> str:
    """Why a job is neither in the queue nor finished, though nobody wrote why."""
    command = ["sacct", "-n", "-X", "-P", "-o", "State", "-j", job]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        found = ""
    lines = [line for log in sorted(folder.glob("*_0_log.out")) for line in log.read_text(errors="replace").split("\n")]
    last = next((line.strip() for line in reversed(lines) if line.strip()), "no log")
    return f"left the queue {f'({found.lower()})' if found else 'unfinished'}; its log ends: {last[:200]}"


def _left(run: RunState) -> str:
    """
    >>> steps = [{"step": s, "time/rollout": 60.0, "time/update": 30.0} for s in (1, 2)]
    >>> _left(RunState(Path("a"), [], step=2, steps=42, metrics=steps))
    '1:00 h'
    """
    if not run.metrics or not run.steps:
        return ""
    last = run.metrics[-5:]
    minutes = (run.steps - run.step) * sum(seconds(line) for line in last) / len(last) / 60
    return f"{int(minutes) // 60}:{int(minutes) % 60:02d} h"


def seconds(line: dict[str, Any]) -> float:
    """How long a step took, from its line of metrics."""
    return sum(value for key, value in line.items() if key.startswith("time/"))


def _name(runs: list[RunState]) -> None:
    """A run's setting is what not all runs have in common, the seed apart, and what belongs to the same run."""
    keys = [dict(override.split("=", 1) for override in run.overrides if "=" in override) for run in runs]
    varied = {key for own in keys for key in own if len({other.get(key) for other in keys}) > 1}
    varied -= {"seed", *MAY_CHANGE}
    for run, own in zip(runs, keys, strict=True):
        run.seed = own.get("seed", "")
        parts = [f"{key.lstrip('+')}={value}" for key, value in own.items() if key in varied]
        run.setting = ", ".join(sorted(parts)) or "default"


def _split(name: str) -> list[str]:
    """The overrides that a folder is named after.

    >>> _split("algo=grpo,filters=[zero_variance,mrs],seed=1")
    ['algo=grpo', 'filters=[zero_variance,mrs]', 'seed=1']
    """
    return re.split(r",(?![^\[]*\])", name)


def _lines(path: Path) -> list[dict[str, Any]]:
    """JSON lines; one that is being written is left out."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def _json(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
