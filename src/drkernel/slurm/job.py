"""What submitit pickles and runs: a command in a snapshot. Its state is in the run folder, so a restart is the same."""

from __future__ import annotations

import os
import runpy
import sys
from dataclasses import dataclass
from typing import Any

from drkernel.slurm.guard import restart_reason


@dataclass
class Job:
    """`python script overrides...` with its run folder. Every task of the job calls it, each as one rank."""

    script: str
    overrides: list[str]
    run_dir: str

    def __call__(self) -> None:
        _say_why_restarted()
        # Quoted: the folder's name has commas and equals signs, which mean something to Hydra.
        sys.argv = [self.script, *self.overrides, f"hydra.run.dir='{self.run_dir}'"]
        runpy.run_path(self.script, run_name="__main__")

    def checkpoint(self) -> Any:
        """submitit asks what to run after a requeue: the same; the run finds its own checkpoint."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _say_why_restarted() -> None:
    """A requeued run tells its log why it is back; Slurm itself leaves no word of it there."""
    from submitit import JobEnvironment

    restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    if restarts and os.environ.get("SLURM_PROCID") == "0":
        log = JobEnvironment().paths.stdout.read_text(errors="replace")
        print(f"restart {restarts}: {restart_reason(log)}", flush=True)
