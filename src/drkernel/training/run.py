"""The run folder: everything that reproduces a run, and the metrics that it leaves.

    outputs/<name>/<overrides>/
      config.yaml diff.patch environment.txt starts.jsonl               what was run: command, commit, changes to it
      metrics.jsonl                                                     one line per step; the truth
      checkpoints/ policy/ plots/ report.json wandb/                    what came out

The folder's name has no time in it, so the same command finds its own checkpoints and goes on. metrics.jsonl is cut
back to the length that the checkpoint remembers, so a step stands in it exactly once, whatever killed the run before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from drkernel import config as configuration
from drkernel.config import Config
from drkernel.types import DrKernelError

MAY_CHANGE = ("run_dir", "name", "logger", "trainer.steps", "trainer.keep", "trainer.save_every", "judge.workers")
"""Keys that a resumed run may change: nothing that a step's result depends on."""


class Run:
    """One run folder. Opening an existing one checks that it belongs to the same configuration."""

    def __init__(self, config: Config):
        self.config = config
        self.path = Path(config.run_dir)
        self.path.mkdir(parents=True, exist_ok=True)
        self._check_same_config()
        self._describe()
        self._metrics = open(self.path / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115
        self._wandb = None

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Append one line. Keys under `time/` are wall-clock; all others repeat bit for bit on the CPU."""
        self._metrics.write(json.dumps({"step": step, **metrics}) + "\n")
        self._metrics.flush()
        if self._wandb:
            self._wandb.log({"step": step, **metrics})

    @property
    def metrics_offset(self) -> int:
        """Bytes of metrics.jsonl that are final; a checkpoint remembers them."""
        self._metrics.flush()
        os.fsync(self._metrics.fileno())
        return self._metrics.tell()

    def rewind(self, offset: int) -> None:
        """Forget the metrics of steps that are about to be repeated."""
        self._metrics.truncate(offset)
        self._metrics.seek(offset)

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]

    def read(self, name: str) -> Any | None:
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
        settings = {"project": self.config.logger.project, "dir": str(self.path), "mode": mode, "id": wandb_id}
        name = f"{self.config.name}/{self.path.name}"
        self._wandb = wandb.init(name=name, resume="allow" if wandb_id else None, **settings)
        # wandb refuses to log an earlier step again after a rollback, hence a step metric of our own.
        self._wandb.define_metric("*", step_metric="step")
        return self._wandb.id

    def close(self) -> None:
        self._metrics.close()
        if self._wandb:
            self._wandb.finish()

    def _check_same_config(self) -> None:
        path = self.path / "config.yaml"
        if not path.exists():
            return
        before, now = (
            flatten(yaml.safe_load(path.read_text())),
            flatten(yaml.safe_load(configuration.to_yaml(self.config))),
        )
        for key in sorted(before.keys() | now.keys()):
            if before.get(key) != now.get(key) and not key.startswith(MAY_CHANGE):
                raise DrKernelError(
                    f"{path}: this run folder was made with {key}={before.get(key)}, now it is {now.get(key)}; "
                    "choose another name=... or remove the folder"
                )

    def _describe(self) -> None:
        commit = (_git("rev-parse", "HEAD") or "not a git checkout").strip()
        with open(self.path / "starts.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), "command": sys.argv, "commit": commit}) + "\n")
        first = not (self.path / "config.yaml").exists()
        write_text(self.path / "config.yaml", configuration.to_yaml(self.config))
        if not first:
            return
        packages = sorted(f"{d.metadata['Name']}=={d.version}" for d in metadata.distributions())
        write_text(self.path / "environment.txt", "\n".join([f"python {sys.version}", *packages]) + "\n")
        write_text(self.path / "diff.patch", _git("diff", "HEAD") or "")


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one with dotted keys.

    >>> flatten({"a": {"b": 1}, "c": None})
    {'a.b': 1, 'c': None}
    """
    if not isinstance(tree, dict):
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


def _git(*arguments: str) -> str | None:
    root = Path(__file__).resolve().parents[3]
    try:
        return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
