"""The folder of a study: what reproduces it, and what refuses to mix two studies in it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from drkernel.config import EvaluateConfig
from drkernel.config.conversion import to_yaml
from drkernel.config.study import MAY_CHANGE, TIMED
from drkernel.tasks.generators import DEFAULT, expect_known
from drkernel.training.run import describe, flatten, without_snapshots, write_text
from drkernel.types import DrKernelError, Task

CONFIG = "config.yaml"
"""The configuration of a study or of a shard, in its folder."""
IDENTITY = "identity.json"
"""The model and the judge's device, in the folder of a study or of a shard."""
TASKS = "tasks.jsonl"
"""A study's tasks: a line is {"id", "source", ...}. The report shows them, and says which have no completion."""
_MIB = 1 << 20


def keep(config: EvaluateConfig, folder: Path, tasks: Sequence[Task], identity: Mapping[str, str]) -> None:
    """Write what reproduces a study, or one of its shards, which may start together, and its tasks to its folder.

    identity: the model and the judge's device. Raises DrKernelError where the folder, the study's or one of its shards'
    belongs to another study, or had another identity or other tasks.
    """
    study, text = Path(config.run_dir), to_yaml(config)
    free = set(MAY_CHANGE) - set(TIMED if config.scaling.seconds is not None else ())
    for place in (folder, study, *sorted(study.glob("shards/*"))):
        _expect_same(place / CONFIG, _flat, _flat(text), free)
        _expect_same(place / IDENTITY, json.loads, identity)
        _expect_same(place / TASKS, _digests, {f"task {task.id}": task.digest for task in tasks})
    folder.mkdir(parents=True, exist_ok=True)
    describe(folder, text)
    write_text(folder / IDENTITY, json.dumps(identity, indent=1) + "\n")
    write_text(folder / TASKS, "".join(json.dumps(dataclasses.asdict(task)) + "\n" for task in tasks))


def kept_tasks(folder: Path) -> list[Task]:
    """The tasks that a study kept; none where it kept none. Fields of another version are left out."""
    path, known = folder / TASKS, {item.name for item in dataclasses.fields(Task)}
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    found = (json.loads(line) for line in lines if line.strip())
    return [Task(**{name: value for name, value in each.items() if name in known}) for each in found]


def labels(folders: Sequence[str | Path]) -> list[str]:
    """What tells the folders of some studies apart: their names, with as much of their paths as that takes.

    >>> labels(["outputs/a"]), labels(["outputs/a/default", "outputs/b/default"])
    (['a'], ['a/default', 'b/default'])
    """
    names = [Path(folder).name for folder in folders]
    return names if len(set(names)) == len(names) else without_common_path([str(Path(folder)) for folder in folders])


def without_common_path(names: Sequence[str]) -> list[str]:
    """Without the path that all names begin with.

    >>> without_common_path(["outputs/a/single", "outputs/a/managed"])
    ['single', 'managed']
    """
    parts = [name.split("/") for name in names]
    while len(names) > 1 and all(len(part) > 1 and part[0] == parts[0][0] for part in parts):
        parts = [part[1:] for part in parts]
    return ["/".join(part) for part in parts]


def fingerprint(policy: str) -> str:
    """Which weights a policy has, at the cost of reading a little: 16 hex digits over config.json and, of each
    safetensors file, its size and its first and last MiB. A hub id stands for itself.

    Raises DrKernelError where the path is neither a policy's folder nor a hub id.
    """
    folder = Path(policy)
    if not folder.exists() and re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", policy):
        return policy
    if not (folder / "config.json").is_file():
        raise DrKernelError(f"policy.path: no config.json in {policy}; expected a Hugging Face folder or a hub id")
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            digest.update(f"{path.name} {size} ".encode() + file.read(_MIB))
            file.seek(max(0, size - _MIB))
            digest.update(file.read(_MIB))
    return digest.hexdigest()[:16]


def _expect_same(
    path: Path, read: Callable[[str], Mapping], now: Mapping[str, Any], free: Collection[str] = ()
) -> None:
    """DrKernelError where a study's file, if there is one, has another value under a key that is not free to change."""
    try:
        before = read(path.read_text(encoding="utf-8")) if path.exists() else now
    except (ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise DrKernelError(f"{path}: not what a study leaves there ({type(error).__name__}: {error})") from None
    expect_known(before.get("tasks.generator", DEFAULT), f"{path}: tasks.generator")
    for key in sorted((before.keys() | now.keys()) - set(free)):
        if before.get(key) != now.get(key):
            raise DrKernelError(
                f"{path}: this study was made with {key}={before.get(key)}, now it is {now.get(key)}; "
                "choose another name=... or remove the folder"
            )


def _flat(text: str) -> dict[str, Any]:
    return flatten(yaml.safe_load(without_snapshots(text)))


def _digests(lines: str) -> dict[str, str]:
    """By task, from a study's tasks.jsonl."""
    tasks = [Task(**json.loads(line)) for line in lines.split("\n") if line]
    return {f"task {task.id}": task.digest for task in tasks}
