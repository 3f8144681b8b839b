"""The code that a sweep runs: a copy made when it was submitted, so that later edits do not change what still waits."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

MARK = ".snapshot.json"
LEFT_OUT = ("tests", "docs", "results", "benchmarks", "outputs")
"""Folders that no run needs."""


def snapshot(repository: Path, into: Path) -> Path:
    """Copy what `repository` holds now, committed or not, to `into`/<hash of it>, unless it is there."""
    names = _names(repository)
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode() + b"\0" + (repository / name).read_bytes() + b"\0")
    target = into / digest.hexdigest()[:12]
    if target.exists():
        return target
    partial = into / f".{target.name}.{os.getpid()}"
    for name in names:
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(repository / name, partial / name)
    facts = {"repository": str(repository), "commit": commit(repository), "diff": diff(repository)}
    (partial / MARK).write_text(json.dumps(facts))
    try:
        os.replace(partial, target)
    except OSError:  # another submission was quicker
        shutil.rmtree(partial)
    return target


def commit(root: Path) -> str:
    """The commit that the code in `root` is, or was copied from."""
    taken = _taken(root)
    return taken["commit"] if taken else (_git(root, "rev-parse", "HEAD") or "not a git checkout").strip()


def diff(root: Path) -> str:
    """What the code in `root` has, or had when it was copied, beyond its commit."""
    taken = _taken(root)
    return taken["diff"] if taken else _git(root, "diff", "HEAD") or ""


def _taken(root: Path) -> dict[str, str] | None:
    mark = root / MARK
    return json.loads(mark.read_text()) if mark.exists() else None


def _names(repository: Path) -> list[str]:
    """Files below `repository`, those that git ignores excepted; without git, Python and configuration files."""
    listed = _git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        folders = [repository / name for name in ("src", "conf", "assets", "sweeps")]
        found = [*repository.glob("*.py"), *(path for folder in folders for path in folder.rglob("*"))]
        names = [str(path.relative_to(repository)) for path in found if "__pycache__" not in path.parts]
    else:
        names = listed.split("\0")
    return sorted({n for n in names if n and n.split("/")[0] not in LEFT_OUT and (repository / n).is_file()})


def _git(root: Path, *arguments: str) -> str | None:
    try:
        return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
