"""Checkpoints that hold everything and are either whole or not there.

    checkpoints/step_000010/state.pt     weights, optimizer, sampler, every RNG, metrics offset, ids
    checkpoints/step_000010/COMPLETE     JSON: step and SHA-256 of state.pt, written last

A checkpoint is written beside its place and renamed into it, so a killed run leaves the last whole one. Files are read
with `weights_only`: a checkpoint cannot run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy
import torch

from drkernel.training.run import write_text
from drkernel.types import DrKernelError


def save(folder: Path, step: int, state: dict[str, Any], keep: int) -> Path:
    """Write `state` (tensors, plain values, containers of them) as step `step`; keep the newest `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    final, partial = folder / f"step_{step:06d}", folder / f".step_{step:06d}.tmp"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    with open(partial / "state.pt", "wb") as file:
        torch.save({**state, "step": step, "rng": rng_state()}, file)
        file.flush()
        os.fsync(file.fileno())
    write_text(partial / "COMPLETE", json.dumps({"step": step, "sha256": _sha256(partial / "state.pt")}))
    shutil.rmtree(final, ignore_errors=True)
    os.replace(partial, final)
    for old in complete(folder)[:-keep]:
        shutil.rmtree(old)
    return final


def load_latest(folder: Path) -> dict[str, Any] | None:
    """The newest whole checkpoint, its RNG states restored, or None. Raises DrKernelError if it is damaged."""
    found = complete(folder)
    if not found:
        return None
    path = found[-1] / "state.pt"
    try:
        expected = json.loads((found[-1] / "COMPLETE").read_text())["sha256"]
        actual = _sha256(path)
        if actual != expected:
            raise ValueError(f"SHA-256 is {actual[:12]}, expected {expected[:12]}")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        hint = f"remove the folder to resume from {found[-2].name}" if len(found) > 1 else "remove it to start again"
        raise DrKernelError(f"{path}: corrupt checkpoint ({' '.join(str(error).split())}); {hint}") from None
    restore_rng(state.pop("rng"))
    return state


def complete(folder: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    return sorted(path.parent for path in folder.glob("step_*/COMPLETE"))


def rng_state() -> dict[str, Any]:
    """Every random state of this process. Rollouts and filters draw from (seed, step) alone; libraries may not."""
    kind, keys, position, has_gauss, gauss = numpy.random.get_state()
    version, internal, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
        "numpy": [kind, torch.from_numpy(keys.astype("int64")), position, has_gauss, gauss],
        "python": [version, list(internal), gauss_next],
    }


def restore_rng(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    kind, keys, *rest = state["numpy"]
    numpy.random.set_state((kind, keys.numpy().astype("uint32"), *rest))
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
