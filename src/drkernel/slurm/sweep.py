"""A sweep as one array of Slurm jobs: which runs it needs, and the batch script that starts them through submitit."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drkernel.config import REPOSITORY
from drkernel.slurm import queue
from drkernel.slurm.job import Job
from drkernel.slurm.snapshot import snapshot
from drkernel.types import DrKernelError

UNLIMITED = 1_000_000
"""How many timeouts submitit answers with a requeue; its launcher's default is none at all."""

FREE_PORT = "import socket; s = socket.create_server((str(), 0)); print(s.getsockname()[1])"


@dataclass(frozen=True)
class Planned:
    """One run of the sweep: its overrides, its folder, and how many steps make it complete."""

    overrides: list[str]
    run_dir: str
    steps: int | None

    @property
    def key(self) -> tuple[str, str]:
        return queue.key(self.run_dir, self.overrides)

    def finished(self, succeeded: bool) -> bool:
        """A training by its report: it may have been asked for more steps since, unless it ended early. Others when
        their job succeeded."""
        path = Path(self.run_dir) / "report.json"
        if path.exists():
            report = json.loads(path.read_text())
            return bool(report.get("ended_early")) or report.get("step") == self.steps
        return succeeded and Path(self.run_dir).exists() and not (Path(self.run_dir) / "metrics.jsonl").exists()


def submit(planned: Sequence[Planned], sweep: Path, options: dict[str, Any]) -> str:
    """Submit those runs that are neither finished nor in the queue. options: the fields of SlurmConfig, but `_target_`.

    Held jobs of the sweep are released. Returns what to tell the user; raises DrKernelError where that cannot be known.
    """
    with exclusive(sweep):
        return _submit(planned, sweep, options)


@contextlib.contextmanager
def exclusive(sweep: Path) -> Iterator[None]:
    """One command at a time looks at the queue and adds to it."""
    (sweep / queue.FOLDER).mkdir(parents=True, exist_ok=True)
    with open(sweep / queue.FOLDER / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _submit(planned: Sequence[Planned], sweep: Path, options: dict[str, Any]) -> str:
    here, before = queue.queued(), queue.submitted(sweep)
    if here is None:
        found = "squeue does not answer; nothing was submitted, since what is under way could start twice"
        raise DrKernelError(f"{found}; expected a Slurm cluster, which SLURM_CONF or /etc/slurm names")
    jobs = {queue.key(b.run_dir, b.overrides): b.jobs for b in before}
    waiting = {key for key, names in jobs.items() if any(name in here for name in names)}
    over = {key for key, names in jobs.items() if queue.succeeded(sweep / queue.FOLDER / names[-1])}
    held = [name for names in jobs.values() for name in names if name in here and here[name].held]
    for name in held:
        subprocess.run(["scontrol", "release", name], check=False)
    busy = [run for run in planned if run.key in waiting]
    todo = [run for run in planned if run not in busy and not run.finished(run.key in over)]
    details = ""
    if todo:
        code = snapshot(REPOSITORY, sweep / ".code")
        script = str(code / Path(sys.argv[0]).name)
        started = executor(sweep, code, options).submit_array([Job(script, r.overrides, r.run_dir) for r in todo])
        for job, run in zip(started, todo, strict=True):
            queue.note(job.paths.folder, run.run_dir, run.overrides)
        details = f" (job {started[0].job_id.split('_')[0]}, code in {os.path.relpath(code)})"
    counts = f"{len(todo)} runs submitted{details}, {len(busy)} in the queue already"
    counts += f" ({len(held)} of them held, now released)" if held else ""
    lines = [f"{counts}, {len(planned) - len(todo) - len(busy)} finished"]
    return "\n".join(
        [*lines, f"python -m sweeps {os.path.relpath(sweep)}    shows where they stand, and their results"]
    )


def executor(sweep: Path, code: Path, options: dict[str, Any]) -> Any:
    """submitit's, with everything that these options say."""
    import submitit

    left = dict(options)
    if 60 * minutes(left["time"]) < 2 * left["signal_delay_s"]:
        limits = f"hydra.launcher.time={left['time']}, signal_delay_s={left['signal_delay_s']}"
        raise DrKernelError(
            f"{limits}: the signal to save comes this long before the limit; expected at most half of it"
        )
    mem, mail = left.pop("mem_gb"), left.pop("mail")
    parameters = {
        "time": minutes(left.pop("time")),
        "ntasks_per_node": left.pop("tasks_per_node"),
        "array_parallelism": left.pop("parallel"),
        "mem": f"{mem}GB" if mem else None,
        "mail_user": mail,
        "mail_type": "FAIL" if mail else None,
        "job_name": sweep.name,
        "stderr_to_stdout": True,
        "setup": [*environment(sweep, code), *left.pop("setup")],
        "additional_parameters": {"requeue": True, **left.pop("additional_parameters")},
        **left,
    }
    made = submitit.SlurmExecutor(sweep / queue.FOLDER / "%j", max_num_timeout=UNLIMITED)
    made.update_parameters(**{name: value for name, value in parameters.items() if value is not None})
    return made


def environment(sweep: Path, code: Path) -> list[str]:
    """The head of the batch script."""
    guard = f"{shlex.quote(sys.executable)} -m drkernel.slurm.guard $? {shlex.quote(str(sweep / queue.FOLDER))}"
    return [
        f"export PYTHONPATH={shlex.quote(f'{code}/src:{code}')}",
        "export SLURM_KILL_BAD_EXIT=1  # one rank fails: end the others, which would wait for it in a collective",
        "export SLURM_CPU_BIND=none  # the judge's processes belong to the first rank and need all cores of the job",
        "export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}  # since Slurm 22.05 srun does not take it from sbatch",
        "export SLURM_EXPORT_ENV=ALL  # where sbatch exports nothing, srun would drop these lines",
        f"export MASTER_PORT=$({shlex.quote(sys.executable)} -c '{FREE_PORT}')  # this node has rank 0",
        f"trap {shlex.quote(guard)} EXIT",
    ]


def minutes(text: str) -> int:
    """Slurm's way to write a time, rounded up to minutes.

    >>> minutes("90"), minutes("12:00:00"), minutes("1-06"), minutes("1-06:30:00"), minutes("0:30")
    (90, 720, 1800, 1830, 1)
    """
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", str(text).strip())
    if not found:
        raise DrKernelError(f"hydra.launcher.time={text} is no time; expected minutes, H:MM:SS or D-HH:MM:SS")
    days, *parts = found.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None or len(numbers) == 3:
        hours, mins, seconds = numbers + [0] * (3 - len(numbers))
    else:
        hours, (mins, seconds) = 0, numbers + [0] * (2 - len(numbers))
    return -(-((int(days or 0) * 24 + hours) * 3600 + mins * 60 + seconds) // 60)
