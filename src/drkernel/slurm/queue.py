"""What Slurm and submitit's folder know about the runs of a sweep."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = ".submitit"
"""Below the sweep's folder: one folder per job with its logs, submitit's pickles and RUN."""
RUN = "run.json"
FAILED = "failed.json"
"""In the folder of a job that will not be started again: why."""


@dataclass(frozen=True)
class Queued:
    """One job in Slurm's queue. left: time to its limit, as Slurm writes it; reason: why it waits."""

    job: str
    state: str
    left: str
    reason: str
    nodes: str

    @property
    def held(self) -> bool:
        """It waits for somebody to release it, as after a failed prolog."""
        return "held" in self.reason.lower()


def queued() -> dict[str, Queued] | None:
    """This user's jobs by id (ARRAY_INDEX in an array); None where there is no Slurm or it does not answer."""
    if not shutil.which("squeue"):
        return None
    command = ["squeue", "--me", "-a", "-h", "-r", "-o", "%i|%T|%L|%r|%N"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [line.split("|") for line in output.splitlines()]
    return {row[0]: Queued(*row) for row in rows if len(row) == 5}


def note(folder: Path, run_dir: str, overrides: list[str]) -> None:
    """Remember in a job's folder which run it is."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RUN).write_text(json.dumps({"run_dir": run_dir, "overrides": overrides}))


def key(run_dir: str | Path, overrides: Sequence[str]) -> tuple[str, str]:
    """What makes two submissions the same run: the folder, and for a study that is shared out its shard. Not all of the
    overrides: some (more steps, another logger) belong to the same run."""
    return str(run_dir), next((override for override in overrides if override.startswith("shard=")), "")


@dataclass(frozen=True)
class Submitted:
    """A run of a sweep, what it was asked for last, and the jobs that it was submitted as, oldest first."""

    run_dir: Path
    overrides: tuple[str, ...]
    jobs: tuple[str, ...]


def submitted(sweep: Path) -> list[Submitted]:
    """Every run of the sweep that was ever submitted, in that order."""
    found: dict[tuple[str, str], tuple[str, list[str], list[str]]] = {}
    for path in sorted(sweep.glob(f"{FOLDER}/*/{RUN}"), key=lambda path: (path.stat().st_mtime_ns, path)):
        noted = json.loads(path.read_text())
        run, overrides = noted["run_dir"], noted["overrides"]
        *_, jobs = found.get(key(run, overrides), ([],))
        found[key(run, overrides)] = run, overrides, [*jobs, path.parent.name]
    return [Submitted(Path(run), tuple(overrides), tuple(jobs)) for run, overrides, jobs in found.values()]


def succeeded(folder: Path) -> bool:
    """Whether submitit noted in this job's folder that it went well: for runs whose result is not a report.json."""
    path = folder / f"{folder.name}_0_result.pkl"
    return path.exists() and pickle.loads(path.read_bytes())[0] == "success"
