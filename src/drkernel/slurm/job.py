"""What submitit pickles and runs: a command in a snapshot. What changes is in the run folder."""

from __future__ import annotations

import runpy
import sys
from dataclasses import dataclass
from typing import Any


@dataclass
class Job:
    """`python script overrides...` with its run folder. Every task of the job calls it, each as one rank."""

    script: str
    overrides: list[str]
    run_dir: str

    def __call__(self) -> None:
        # Quoted: the folder's name has commas and equals signs, which mean something to Hydra.
        sys.argv = [self.script, *self.overrides, f"hydra.run.dir='{self.run_dir}'"]
        runpy.run_path(self.script, run_name="__main__")

    def checkpoint(self) -> Any:
        """submitit asks what to run after a requeue: the same; the run finds its own checkpoint."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)
