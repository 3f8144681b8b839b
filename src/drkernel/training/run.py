"""The run folder: everything that reproduces a run, and the metrics that it leaves.

    outputs/<name>/<overrides>/
      config.yaml diff.patch environment.txt starts.jsonl               what was run: command, commit, changes to it
      tasks.json template.yaml                                          which tasks: number and digest; own prompts
      metrics.jsonl                                                     one line per step; the truth
      completions/                                                      every completion, a file per step
      checkpoints/ best.json policy/ plots/ report.json wandb/          what came out; best.json names a checkpoint

The folder's name has no time in it, so the same command finds its own checkpoints and goes on. A resumed run cuts
metrics.jsonl back to the length that the checkpoint states, so that each step is in it exactly once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from drkernel.config import REPOSITORY, Config, LoggerConfig
from drkernel.config.command_line import without_secret
from drkernel.config.conversion import to_yaml
from drkernel.config.effects import is_read
from drkernel.config.keys import may_change
from drkernel.config.run import with_defaults
from drkernel.slurm import snapshot
from drkernel.tasks.generators import DEFAULT, expect_known
from drkernel.training.judging import measured_on
from drkernel.training.ranks import Ranks
from drkernel.types import DrKernelError, Task

OWNER = ".owner"
"""A token of the newest start, which alone may write to the folder."""
COMPLETIONS, BEST = "completions", "best.json"
TEMPLATE = "template.yaml"
UNDIVIDED = ("sft.data",)
"""Keys whose value may be a dictionary."""
TASKS = "tasks.json"
"""How many tasks the run trains on and is tested on, and their digests."""


class Run:
    """One run folder. Opening an existing one checks that it belongs to the same configuration."""

    def __init__(self, config: Config):
        self.config = config
        self.path = Path(config.run_dir)
        self._is_new = not self.path.exists() or not any(self.path.iterdir())
        make_folder(self.path)
        self._check_same_config()
        device = self._check_same_device()
        self._check_same_template()
        self._token = uuid.uuid4().hex
        write_text(self.path / OWNER, self._token)
        describe(self.path, to_yaml(self.config), judge=device)
        self._metrics = open(self.path / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115
        self._wandb: Any = None

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Append one line. All metrics but those of `metric_names.WALL_CLOCK` repeat bit for bit on the CPU.

        What is not a finite number, such as the speed-up of a step without a right submission, is null: JSON has no
        NaN.
        """
        self._expect_ownership()
        finite = {name: None if _not_finite(value) else value for name, value in metrics.items()}
        self._metrics.write(json.dumps({"step": step, **finite}, allow_nan=False) + "\n")
        self._metrics.flush()
        if self._wandb:
            self._wandb.log({"step": step, **metrics})

    @property
    def metrics_offset(self) -> int:
        """Length of metrics.jsonl in bytes, all of them on disk; checkpoints state it."""
        self._expect_ownership()
        self._metrics.flush()
        os.fsync(self._metrics.fileno())
        return self._metrics.tell()

    def rewind(self, offset: int, step: int = 0) -> None:
        """Cut off the metrics and remove the completions of steps after `step`, which are about to be repeated."""
        self._metrics.truncate(offset)
        self._metrics.seek(offset)
        for path in (self.path / COMPLETIONS).glob("*_*.parquet*"):
            if int(path.name.partition(".")[0].rpartition("_")[2]) > step:
                path.unlink()

    def completions_path(self, name: str) -> Path:
        """Where the completions of a step or a validation go."""
        self._expect_ownership()
        (self.path / COMPLETIONS).mkdir(exist_ok=True)
        return self.path / COMPLETIONS / f"{name}.parquet"

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]

    def read(self, name: str) -> Any:
        """A JSON result written earlier, or None."""
        path = self.path / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def write(self, name: str, value: Any) -> None:
        """Write a JSON result atomically."""
        write_text(self.path / name, json.dumps(value, indent=1) + "\n")

    def start_wandb(self, wandb_id: str | None) -> str | None:
        """Start or resume wandb (offline: files in the run folder) and return the id to resume with."""
        mode = self.config.logger.wandb
        if mode == "disabled":
            return None
        import wandb

        os.environ.setdefault("WANDB_SILENT", "true")
        settings: dict[str, Any] = {
            "project": self.config.logger.project,
            "dir": str(self.path),
            "mode": mode,
            "id": wandb_id,
        }
        name = f"{self.config.name}/{self.path.name}"
        with _wandbs_errors(self.config.logger):
            self._wandb = wandb.init(name=name, resume="allow" if wandb_id else None, **settings)
        # wandb refuses to log an earlier step again after a rollback, hence a step metric of our own.
        self._wandb.define_metric("*", step_metric="step")
        return self._wandb.id

    def log_table(self, step: int, name: str, rows: list[dict[str, Any]]) -> None:
        """A table for wandb, where that runs; the keys of the first row are the columns."""
        if self._wandb and rows:
            import wandb

            data = [[row[column] for column in rows[0]] for row in rows]
            self._wandb.log({"step": step, name: wandb.Table(columns=list(rows[0]), data=data)})

    def log_file(self, path: Path, kind: str) -> None:
        """A file as an artifact of wandb, where that runs."""
        if self._wandb:
            import wandb

            artifact = wandb.Artifact(f"{kind}-{self._wandb.id}", type=kind)
            artifact.add_file(str(path))
            self._wandb.log_artifact(artifact)

    def close(self) -> None:
        self._metrics.close()
        if self._wandb:
            self._wandb.finish()

    def remove_if_unused(self) -> None:
        """Remove the folder if this start made all that is in it and no line of metrics.jsonl. Nothing may follow."""
        unused = self._is_new and not self._metrics.tell()
        self.close()
        if unused:
            shutil.rmtree(self.path)

    def _expect_ownership(self) -> None:
        """Raises DrKernelError where another start owns the folder: a node without network may still be running."""
        if (self.path / OWNER).read_text() != self._token:
            raise DrKernelError(f"{self.path}: another start of this run has taken over")

    def _check_same_config(self) -> None:
        path = self.path / "config.yaml"
        if not path.exists():
            return
        texts = path.read_text(), to_yaml(self.config)
        trees = (with_defaults(yaml.safe_load(without_snapshots(text))) for text in texts)
        before, now = (flatten(tree) for tree in trees)
        expect_known(before.get("tasks.generator", DEFAULT), f"{path}: tasks.generator")
        for key in sorted(before.keys() | now.keys()):
            if before.get(key) != now.get(key) and not may_change(key) and is_read(self.config.stage, key):
                raise DrKernelError(
                    f"{path}: this run folder was made with {key}={before.get(key)}, now it is {now.get(key)}; "
                    "choose another name=... or remove the folder"
                )

    def _check_same_template(self) -> None:
        """Keeps the texts of the prompts, where they are a file's: a run goes on with those that it began with."""
        if not (given := self.config.policy.template) or not Path(given).exists():
            return
        kept, text = self.path / TEMPLATE, Path(given).read_text(encoding="utf-8")
        if kept.exists() and kept.read_text(encoding="utf-8") != text:
            raise DrKernelError(
                f"{given}: found other texts than this run began with ({kept}); restore them, choose another name=... "
                "or remove the folder"
            )
        write_text(kept, text)

    def _check_same_device(self) -> str:
        """What submissions are measured on. Another kind of device gives other rewards, so a run keeps to one."""
        if not self.config.generates:  # then nothing is measured
            return ""
        now, path = measured_on(self.config), self.path / "starts.jsonl"
        starts = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        before = next((device for line in starts if (device := json.loads(line).get("judge"))), now)
        if before != now:
            raise DrKernelError(
                f"{path}: this run was measured on {before}, now it would be on {now}; "
                "give it such GPUs (hydra.launcher.constraint, judge.device), or another name=..."
            )
        return now


@contextlib.contextmanager
def opened(config: Config, ranks: Ranks) -> Iterator[Run | None]:
    """The run folder, for rank 0; None for others. One that this start made is gone again where the start is refused
    before its first step."""
    if ranks.is_main:
        expect_wandb(config.logger)
    run = Run(config) if ranks.is_main else None
    try:
        yield run
    except DrKernelError:
        if run:
            run.remove_if_unused()
        raise
    if run:
        run.close()


def expect_wandb(logger: LoggerConfig) -> None:
    """Raises DrKernelError where wandb is to send what is logged and has no key, before anything slow. On a terminal
    wandb asks for one."""
    if logger.wandb != "online":
        return
    import wandb

    os.environ.setdefault("WANDB_SILENT", "true")
    with _wandbs_errors(logger):
        wandb.login()


@contextlib.contextmanager
def _wandbs_errors(logger: LoggerConfig) -> Iterator[None]:
    """Errors of wandb name the key that asks for it."""
    import wandb

    try:
        yield
    except wandb.errors.Error as error:
        expected = "expected WANDB_API_KEY or `wandb login`, or logger=offline"
        raise DrKernelError(f"config: logger.wandb={logger.wandb}: {error}; {expected}") from None


def make_folder(path: Path) -> None:
    """A run's or a study's folder. Raises DrKernelError where it cannot be made or written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise DrKernelError(
            f"config: run_dir={path}: {error.strerror}; expected a folder that can be written"
        ) from None


def check_tasks(run: Run | None, train: Sequence[Task], test: Sequence[Task]) -> None:
    """Keep a digest of the tasks in tasks.json of the run folder; without one (on other ranks) do nothing.

    Raises DrKernelError where the run began with other tasks to train on. Test tasks may change: no step depends on
    them.
    """
    if run is None:
        return
    now = {name: {"count": len(tasks), "digest": digest(tasks)} for name, tasks in (("train", train), ("test", test))}
    before = (run.read(TASKS) or now)["train"]
    if before != now["train"]:
        found, expected = (f"{part['count']} with digest {part['digest']}" for part in (now["train"], before))
        raise DrKernelError(
            f"{run.path / TASKS}: this run trains on other tasks ({expected}) than {run.config.tasks.source} gives now "
            f"({found}); restore the tasks, choose another name=... or remove the folder"
        )
    run.write(TASKS, now)


def digest(tasks: Sequence[Task]) -> str:
    """16 hex digits over the ids and digests of tasks, in their order."""
    return hashlib.sha256(repr([(task.id, task.digest) for task in tasks]).encode()).hexdigest()[:16]


def describe(folder: Path, config: str, **more: str) -> None:
    """Write what reproduces a run: its configuration, every start, and the first start's packages and local changes."""
    start = {"time": time.time(), "command": without_secret(sys.argv), "commit": snapshot.commit(REPOSITORY), **more}
    if "SLURM_JOB_ID" in os.environ:
        names = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_RESTART_COUNT")
        start["slurm"] = {name: os.environ[name] for name in names if name in os.environ}
    with open(folder / "starts.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(start) + "\n")
    first = not (folder / "config.yaml").exists()
    write_text(folder / "config.yaml", config)
    if not first:
        return
    write_text(folder / "environment.txt", "\n".join([f"python {sys.version}", *packages()]) + "\n")
    write_text(folder / "diff.patch", snapshot.diff(REPOSITORY))


@functools.cache
def packages() -> list[str]:
    """What is installed, with versions."""
    return sorted(f"{d.metadata['Name']}=={d.version}" for d in metadata.distributions())


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one with dotted keys.

    >>> flatten({"a": {"b": 1}, "c": None})
    {'a.b': 1, 'c': None}
    """
    if not isinstance(tree, dict) or prefix[:-1] in UNDIVIDED:
        return {prefix[:-1]: tree}
    return {key: value for name, child in tree.items() for key, value in flatten(child, f"{prefix}{name}.").items()}


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, sees the old text or the new one and never half of it."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def without_snapshots(text: str) -> str:
    """Paths into a snapshot of the code as paths from the repository's root; resubmission makes another snapshot."""
    return re.sub(r"(?<=: )/\S*/\.code/[0-9a-f]{12}/", "", text).replace(f"{REPOSITORY}/", "")
