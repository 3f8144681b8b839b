"""Checkpoints that hold everything, are either whole or not there, and fit any number of ranks.

    checkpoints/step_000010/state.pt       the caller's state, and the optimizer's hyperparameters and step counts
    checkpoints/step_000010/tensors/       weights that train and optimizer moments as safetensors, each rank its shards
    checkpoints/step_000010/rng_00000.pt   every random state of a rank
    checkpoints/step_000010/COMPLETE       JSON: step, ranks, SHA-256 of every file; written last

Of a policy with adapters only these are weights that train. COMPLETE then names the base: its source and a digest.

A checkpoint is written to a temporary folder and renamed at the end, so a killed run leaves the last whole one; the
next start removes the rest. Nothing in it is a pickle that could run code: state is read with `weights_only`, and
torch.distributed.checkpoint (DCP) uses its safetensors storage instead of its default.

The optimizer's state is taken apart here and not by DCP's `get_optimizer_state_dict`. That function takes a step with
an optimizer that has no state yet, which would change the bias correction of all later steps. And safetensors cannot
hold the hyperparameters and step counts beside the tensors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import textwrap
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import BlockingAsyncStager

from drkernel.policy.model import Base, Policy
from drkernel.training.ranks import Ranks
from drkernel.training.run import write_text
from drkernel.training.seeds import restore_rng, rng_state, seed_rng
from drkernel.training.sharding import parameters
from drkernel.types import DrKernelError

FILE_BYTES = 2 << 30
"""Most bytes, over all ranks, of one round of files: DCP holds a rank's part of a round twice in host memory."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What a checkpoint will hold, as it is now: this rank's part of it."""

    step: int
    tensors: dict[str, Tensor]
    files: dict[str, bytes]
    base: dict[str, Any]

    def copied(self) -> Snapshot:
        """With tensors of its own in the host's memory, so that training may go on."""
        return dataclasses.replace(self, tensors=BlockingAsyncStager().stage(self.tensors))


@dataclasses.dataclass(frozen=True)
class Keep:
    """Which checkpoints stay once a new one is whole."""

    newest: int
    """So many of them ..."""
    best: int | None = None
    """... and this step's ..."""
    every: int | None = None
    """... and every step's that this divides."""

    def __call__(self, step: int) -> bool:
        """Whether a checkpoint stays though it is none of the newest."""
        return step == self.best or (self.every is not None and step % self.every == 0)


def take(step: int, policy: Policy, optimizer: torch.optim.Optimizer, state: dict[str, Any], ranks: Ranks) -> Snapshot:
    """What `write` writes of step `step`.

    state: plain values, tensors and containers of them, the same on all ranks; rank 0's are written.
    """
    tensors, scalars = _optimizer_state(policy, optimizer)
    tensors |= dict(_weights(policy))
    plain = {"state.pt": {"state": state, "optimizer": scalars}} if ranks.is_main else {}
    plain[f"rng_{ranks.rank:05d}.pt"] = rng_state()
    files = {name: _serialised(value) for name, value in plain.items()}
    return Snapshot(step, tensors, files, {"base": dataclasses.asdict(policy.base)} if policy.base else {})


def write(folder: Path, snapshot: Snapshot, keep: Keep, ranks: Ranks) -> Path:
    """Write a checkpoint, unless it is there already, and remove those that need not stay. Collective, all ranks must
    call it.

    One of the same step with another state is replaced: its validation was due then and is over now.

    Raises DrKernelError on all ranks, naming the file, where it cannot be written; nothing of it is left then.
    """
    final = folder / name_of(snapshot.step)
    if not ranks.broadcast_object(lambda: _is_there(final, snapshot)):
        _write_whole(final, snapshot, ranks)
    ranks.broadcast_object(lambda: _remove_old(folder, keep))
    return final


def _is_there(final: Path, snapshot: Snapshot) -> bool:
    """Whether a whole checkpoint with the snapshot's state is there; rank 0 alone can tell."""
    if not (final / "COMPLETE").exists():
        return False
    files = described(final, "remove the folder")["files"]
    return files["state.pt"] == hashlib.sha256(snapshot.files["state.pt"]).hexdigest()


def _write_whole(final: Path, snapshot: Snapshot, ranks: Ranks) -> None:
    step, partial = snapshot.step, final.with_name(f".{final.name}.tmp")
    try:
        ranks.broadcast_object(lambda: _fresh(partial))
        _write_tensors(partial / "tensors", snapshot.tensors, ranks)
        hashes = ranks.all_gather_object(lambda: _write(partial, snapshot.files) | _shard_hashes(partial, ranks))
        files = dict(sorted(chain.from_iterable(part.items() for part in hashes)))
        text = json.dumps({"step": step, "ranks": ranks.size, **snapshot.base, "files": files}, indent=1)
        ranks.broadcast_object(lambda: _publish(partial, final, text))
    except (DrKernelError, OSError) as error:
        if ranks.is_main:
            shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, DrKernelError):
            raise
        named = error.filename or partial
        failure = DrKernelError(f"{named}: the checkpoint of step {step} cannot be written ({error.strerror or error})")
        failure.on_every_rank = ranks.size > 1
        raise failure from None


def save(
    folder: Path,
    step: int,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    keep: int,
    ranks: Ranks,
    best: int | None = None,
) -> Path:
    """`take` and `write` at once; keep the newest `keep`, and step `best` besides. Collective."""
    return write(folder, take(step, policy, optimizer, state, ranks), Keep(keep, best), ranks)


def _write_tensors(folder: Path, tensors: dict[str, Tensor], ranks: Ranks) -> None:
    writer = HuggingFaceStorageWriter(str(folder), fqn_to_index_mapping=_file_of(tensors), save_distributed=True)
    try:
        with without_warning():
            dcp.save(tensors, storage_writer=writer, process_group=ranks.group, no_dist=not dist.is_initialized())
    except CheckpointException as error:
        failed = next(iter(error.failures.values()))[0]
        reason = getattr(failed, "strerror", None) or one_line(error)
        raise OSError(getattr(failed, "errno", None), reason, str(folder)) from None


def load_latest(
    folder: Path, policy: Policy, optimizer: torch.optim.Optimizer, ranks: Ranks, seed: int = 0
) -> dict[str, Any] | None:
    """Restore the newest whole checkpoint into policy and optimizer and return its `state`, or None without one.

    Random states are restored, too. If another number of ranks saved it, they are drawn from (seed, step, rank).
    Collective, all ranks must call it. Raises DrKernelError on all ranks if a file is damaged or does not fit.
    """
    found = ranks.broadcast_object(lambda: _without_partial(folder))
    if not found:
        return None
    path = found[-1]
    hint = f"remove the folder to resume from {found[-2].name}" if len(found) > 1 else "remove it to start again"
    description = ranks.broadcast_object(lambda: described(path, hint))
    ranks.all_gather_object(lambda: verify(path, sorted(description["files"].items())[ranks.rank :: ranks.size], hint))
    _expect_same_base(path, description["base"], policy.base, hint)
    saved = torch.load(path / "state.pt", map_location="cpu", weights_only=True)
    try:
        _restore(path / "tensors", policy, optimizer, saved["optimizer"])
    except (Exception, CheckpointException) as error:
        raise DrKernelError(f"{path}: does not fit this policy or optimizer ({one_line(error)}); {hint}") from None
    if description["ranks"] == ranks.size:
        restore_rng(torch.load(path / f"rng_{ranks.rank:05d}.pt", map_location="cpu", weights_only=True))
    else:
        seed_rng(seed, description["step"], ranks.rank)
    return saved["state"]


def _without_partial(folder: Path) -> list[Path]:
    """`complete`, after the removal of what interrupted saves and removals left: each is as large as a checkpoint."""
    halves = [path for path in folder.glob("step_*") if _is_ours(path) and not (path / "COMPLETE").exists()]
    for partial in [*folder.glob(".step_*.tmp"), *halves]:
        shutil.rmtree(partial, ignore_errors=True)
    return complete(folder)


def name_of(step: int) -> str:
    return f"step_{step:06d}"


def complete(folder: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    return sorted(path.parent for path in folder.glob("step_*/COMPLETE") if _is_ours(path.parent))


def _is_ours(path: Path) -> bool:
    """Whether a folder has the name of a checkpoint: an export or a copy beside them is the user's."""
    return re.fullmatch(r"step_\d{6,}", path.name) is not None


def _weights(policy: Policy) -> list[tuple[str, Tensor]]:
    return [(f"policy.{name}", weight.detach()) for name, weight in parameters(policy) if weight.requires_grad]


def _optimizer_state(policy: Policy, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The optimizer's tensors of a parameter's shape, by name; and the rest, the same on all ranks.

    The rest is `groups` (hyperparameters), `names` (of the parameters, in the optimizer's order), `kinds` (which
    tensors a parameter has) and `scalars` (step counts). The last two are keyed by the position in `names`.
    """
    names = {parameter: name for name, parameter in parameters(policy)}
    state, groups = optimizer.state_dict().values()
    order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    tensors: dict[str, Tensor] = {}
    kinds, scalars = {}, {}
    for position, values in state.items():
        shaped = {key for key, value in values.items() if getattr(value, "shape", ()) == order[position].shape}
        kinds[position] = sorted(shaped)
        scalars[position] = {key: value for key, value in values.items() if key not in shaped}
        tensors |= {_moment(names[order[position]], key): values[key] for key in kinds[position]}
    return tensors, {"groups": groups, "names": [names[p] for p in order], "kinds": kinds, "scalars": scalars}


def _restore(folder: Path, policy: Policy, optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    weights = dict(_weights(policy))
    names = {parameter: name for name, parameter in parameters(policy)}
    order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if saved["names"] != [names[parameter] for parameter in order]:
        raise ValueError("other parameters, or in another order")
    empty_like = getattr(optimizer, "empty_like", torch.empty_like)  # of one whose state is elsewhere
    state = {
        position: {key: empty_like(order[position].detach()) for key in kinds} | saved["scalars"][position]
        for position, kinds in saved["kinds"].items()
    }
    moments = {
        _moment(saved["names"][position], key): state[position][key]
        for position, kinds in saved["kinds"].items()
        for key in kinds
    }
    reader = HuggingFaceStorageReader(str(folder))
    with without_warning():
        dcp.load(weights | moments, storage_reader=reader, no_dist=not dist.is_initialized())
    optimizer.load_state_dict({"state": state, "param_groups": saved["groups"]})


def _moment(name: str, key: str) -> str:
    return f"optimizer.{key}.{name}"


def _file_of(tensors: dict[str, Tensor]) -> dict[str, int]:
    """Which file, counted from 1, each tensor goes into."""
    files, size = {}, 0
    for name, tensor in tensors.items():
        files[name] = 1 + size // FILE_BYTES
        size += tensor.numel() * tensor.element_size()
    return files


def _fresh(partial: Path) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "tensors").mkdir(parents=True)


def _serialised(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _write(partial: Path, files: dict[str, bytes]) -> dict[str, str]:
    """Writes each file; returns the hashes."""
    for name, content in files.items():
        with open(partial / name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    return {name: _sha256(partial / name) for name in files}


def _shard_hashes(partial: Path, ranks: Ranks) -> dict[str, str]:
    """Of the tensor files that this rank wrote; DCP numbers them from 1."""
    mine = (partial / "tensors").glob(f"shard-{ranks.rank + 1:05d}-*")
    return {f"tensors/{path.name}": _sha256(path) for path in mine}


def _publish(partial: Path, final: Path, text: str) -> None:
    write_text(partial / "COMPLETE", text)
    former = final.with_name(f".{final.name}.former.tmp")  # what a crash leaves of it, the next start removes
    if final.exists():
        os.replace(final, former)
    os.replace(partial, final)
    shutil.rmtree(former, ignore_errors=True)


def _remove_old(folder: Path, keep: Keep) -> None:
    for old in complete(folder)[: -keep.newest]:
        if not keep(int(old.name.removeprefix("step_"))):
            (old / "COMPLETE").unlink()  # first: what is left half-way is no checkpoint
            shutil.rmtree(old)


def described(path: Path, hint: str) -> dict[str, Any]:
    """What the file COMPLETE of a checkpoint says. Raises DrKernelError, with `hint`, where it is damaged."""
    try:
        description = json.loads((path / "COMPLETE").read_text())
        return {key: description[key] for key in ("step", "ranks", "files")} | {"base": description.get("base")}
    except Exception as error:
        raise DrKernelError(f"{path / 'COMPLETE'}: corrupt checkpoint ({one_line(error)}); {hint}") from None


def _expect_same_base(path: Path, saved: dict[str, str] | None, base: Base | None, hint: str) -> None:
    """Raises DrKernelError where adapters were trained on other weights; a folder may have moved."""
    found, expected = base.digest if base else None, saved["digest"] if saved else None
    if found != expected:
        name = lambda digest, source: f"{source} with digest {digest}" if digest else "none (all weights train)"
        is_now, was = name(found, base and base.source), name(expected, saved and saved["source"])
        raise DrKernelError(f"{path}: found a policy whose adapters have the base {is_now}, expected {was}; {hint}")


def verify(path: Path, files: list[tuple[str, str]], hint: str) -> None:
    """Raises DrKernelError, with `hint`, where one of the (name, SHA-256) is not what is in the checkpoint."""
    for name, expected in files:
        try:
            actual = _sha256(path / name)
        except OSError as error:
            raise DrKernelError(f"{path / name}: corrupt checkpoint ({error.strerror}); {hint}") from None
        if actual != expected:
            reason = f"SHA-256 is {actual[:12]}, expected {expected[:12]}"
            raise DrKernelError(f"{path / name}: corrupt checkpoint ({reason}); {hint}")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def one_line(error: BaseException) -> str:
    """A short message. DCP's own exception is no `Exception` and holds one per rank with its traceback."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()))[0]
    return textwrap.shorten(str(error), 300, placeholder=" ...") or type(error).__name__


@contextlib.contextmanager
def without_warning() -> Iterator[None]:
    """DCP warns of a run without a process group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
