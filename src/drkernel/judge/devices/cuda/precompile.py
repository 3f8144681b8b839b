"""Compiles a submission's kernels before it gets a GPU: a tracer finds them and makes PTX, ptxas makes the rest here.

Trusted. What a tracer says is parsed strictly: names must match patterns, sizes have limits, and nothing of it becomes
a path, or an argument of a program beyond a few options of ptxas. `folder` then holds the kernels as Triton's own cache
would (see kernelcache), and for a Triton that launches through a C module per signature (before 3.7) those modules.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as launching
from triton.runtime import build, cache

from drkernel.judge.boundary.cuda.kernel_cache import HOPPER, folder_of, known_keys, write_failure, write_group
from drkernel.judge.boundary.framing import DeadlineExceeded, ProtocolViolation
from drkernel.judge.boundary.shared_tensors import Area, NotSerializable, Slot, encode
from drkernel.judge.devices.cuda import ptxas
from drkernel.judge.trusted.runner_client import Failed, failure_of
from drkernel.judge.untrusted.cuda.tracer import MAX_KERNELS
from drkernel.types import DrKernelError

MAX_PTX = 16 * 2**20
MAX_METADATA, MAX_ARGUMENTS = 2**16, 512
_THREADS = 4
_KEY, _NAME = re.compile(r"[0-9a-f]{64}"), re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,149}")
_TYPE = re.compile(r"constexpr|nvTmaDesc|\*?[a-z][a-z0-9]{0,15}|tensordesc<[a-z0-9]{1,12}\[[0-9]+(, ?[0-9]+){0,4}\]>")
_LAUNCHER, _UTILITIES = "__triton_launcher", "cuda_utils"
_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@dataclass(frozen=True)
class Call:
    """One call that a submission will get: values in exchange's JSON form, a tensor by its index in `metas`."""

    init: Any
    """[arguments, keywords] of the constructor."""
    args: Any
    """The arguments of forward."""
    metas: list
    """[dtype, shape, stride] of each tensor."""
    train: bool

    @classmethod
    def of(cls, init: Any, args: Any, train: bool) -> Call:
        """From values; tensors may be on the meta device. DrKernelError where a value cannot be handed over."""
        metas: list = []

        def put(tensor: Tensor) -> int:
            kind = str(tensor.dtype).removeprefix("torch.")
            metas.append([kind, list(tensor.shape), list(tensor.stride())])
            return len(metas) - 1

        try:
            return cls(encode(init, put), encode(args, put), metas, train)
        except NotSerializable as error:
            raise DrKernelError(f"the task's inputs or arguments cannot be handed to a submission: {error}") from error


@dataclass(frozen=True)
class Compiled:
    """What was compiled ahead."""

    kernels: int
    """How many were added to the folder."""
    failure: Failed | None
    """The first error that is the submission's own beyond doubt."""
    call: int | None
    """Index of the call that it concerns; None where it is at loading, in a missing kernel, or in ptxas."""
    seconds: dict[str, float]
    """`load` and `trace`: in the tracer; `ptxas` and `launcher`: here, over all threads; `wall`: altogether."""


@dataclass(frozen=True)
class Kernel:
    """A kernel as the tracer handed it out, checked."""

    key: str
    name: str
    metadata: dict[str, Any]
    ptx: bytes
    fusion: bool
    ptx_options: str
    signature: tuple
    tuned: bool
    """Whether only autotuners launch it, so that they may go without it."""


def precompile(
    process: Any,
    source: str,
    name: str,
    calls: Sequence[Call],
    missing: Sequence[dict[str, Any]],
    folder: Path,
    shared: Path,
    timeout_s: float,
    target: GPUTarget = HOPPER,
) -> Compiled:
    """Compiles every kernel that these calls are seen to launch, and those described in `missing`.

    A failure in the first call ends the work; one in a later call (another shape) does not. An error that may be due to
    tracing alone ends only its call's trace: what was not found is met on the GPU.

    Args:
        process: a fresh tracer, asked through `.request(body, deadline)` and `.outputs`.
        folder: what lies in it is not compiled again.
        shared: C modules that all submissions share.

    Raises:
        protocol.PeerClosed, protocol.DeadlineExceeded, protocol.ProtocolViolation: for what the tracer does.
    """
    began = time.monotonic()
    work = _Work(folder, shared, began + timeout_s, target)
    clock = {"load": 0.0, "trace": 0.0}
    questions: list[tuple[int | None, dict[str, Any]]] = [
        (None, {"do": "load", "source": source, "name": name, "known": known_keys(folder)})
    ]
    questions += [(i, {"do": "trace", **vars(call)}) for i, call in enumerate(calls)]
    questions += [(None, {"do": "missing", "missing": list(missing)})] if missing else []
    found: tuple[Failed, int | None] | None = None
    try:
        for index, question in questions:
            loading, start = question["do"] == "load", time.monotonic()
            answer = process.request(question, work.deadline)
            clock["load" if loading else "trace"] += time.monotonic() - start
            failure = work.take(answer, process.outputs)
            found = found or (failure and (failure, index))
            if (loading and answer.get("error")) or (failure and index == 0):
                break
        refused = work.finish()
    finally:
        work.close()
    failure, call = found or (refused, None)
    return Compiled(work.kernels, failure, call, clock | work.seconds | {"wall": time.monotonic() - began})


def place_shared(shared: Path, folder: Path) -> None:
    """Puts what every process needs into a folder of kernels, too."""
    for path in shared.glob(f"*/{_UTILITIES}{_SUFFIX}"):
        _place(path, folder / path.parent.name / path.name)


def warm_shared(shared: Path) -> bool:
    """Builds what every process needs to launch kernels; False where there is no CUDA driver to link with."""
    source = (Path(launching.__file__).parent / "driver.c").read_text()
    return _module(source, _UTILITIES, shared) is not None


class _Work:
    """Kernels on their way into the folder."""

    def __init__(self, folder: Path, shared: Path, deadline: float, target: GPUTarget):
        self.folder, self.shared, self.deadline, self.target = folder.absolute(), shared, deadline, target
        self.kernels = 0
        self.seconds = {"ptxas": 0.0, "launcher": 0.0}
        self._pool = ThreadPoolExecutor(_THREADS)
        self._jobs: dict[str, tuple[Kernel, Future]] = {}
        self._launchers: dict[str, Future] = {}
        self._marked = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        place_shared(shared, self.folder)

    def take(self, answer: dict[str, Any], area: Area) -> Failed | None:
        """Starts on the kernels of an answer; returns the failure that it ends with, if it is definite."""
        for raw in _list(answer.get("kernels")):
            kernel = _kernel(raw, area)
            if kernel.key not in self._jobs:
                self._jobs[kernel.key] = kernel, self._pool.submit(self._assemble, kernel)
            if ptxas.VERSION < (3, 7):
                self._launch(kernel)
        for raw in _list(answer.get("failures")):
            self._mark(raw)
        if len(self._jobs) + self._marked > MAX_KERNELS:
            raise ProtocolViolation(f"more than {MAX_KERNELS} kernels")
        if not (error := answer.get("error")):
            return None
        failure = _failed(error)
        return failure if answer.get("definite") is True else None

    def finish(self) -> Failed | None:
        """Waits for all; returns why ptxas refused a kernel that the submission cannot go without."""
        refused = None
        reasons = [(kernel, job.result()) for kernel, job in self._jobs.values()]
        if time.monotonic() > self.deadline:
            raise DeadlineExceeded
        for kernel, reason in reasons:
            if reason is None:
                self.kernels += 1
                continue
            write_failure(folder_of(kernel.key, self.folder), "PTXASError", reason, None)
            if not kernel.tuned:
                refused = refused or Failed("PTXASError", f"{kernel.name}: {reason}", None)
        for key, job in self._launchers.items():
            if path := job.result():
                _place(path, self.folder / key / path.name)
        return refused

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _assemble(self, kernel: Kernel) -> str | None:
        """Writes a kernel's files; returns why there are none."""
        start = time.monotonic()
        try:
            cubin = ptxas.assemble(kernel.ptx, kernel.fusion, kernel.ptx_options, self.target, self.deadline)
        except ptxas.Refused as refused:
            return str(refused)
        finally:
            self.seconds["ptxas"] += time.monotonic() - start
        files = {f"{kernel.name}.cubin": cubin, f"{kernel.name}.json": json.dumps(kernel.metadata).encode()}
        write_group(folder_of(kernel.key, self.folder), kernel.name, files)
        return None

    def _launch(self, kernel: Kernel) -> None:
        source = _launcher_source(kernel)
        key = _module_key(source)
        if key not in self._launchers:
            self._launchers[key] = self._pool.submit(self._build_launcher, source)

    def _build_launcher(self, source: str) -> Path | None:
        start = time.monotonic()
        try:
            return _module(source, _LAUNCHER, self.shared)
        finally:
            self.seconds["launcher"] += time.monotonic() - start

    def _mark(self, raw: Any) -> None:
        if not isinstance(raw, dict) or not _matches(_KEY, raw.get("key")):
            raise ProtocolViolation("a failed kernel described wrongly")
        failure = _failed(raw.get("error"))
        self._marked += 1
        if self._marked <= MAX_KERNELS:
            write_failure(folder_of(raw["key"], self.folder), failure.kind, failure.message, failure.line)


def _failed(error: Any) -> Failed:
    """The error that a tracer describes; a tracer launches nothing, so it can miss no compiled kernel."""
    failure = failure_of(error)
    if not isinstance(failure, Failed):
        raise ProtocolViolation("a tracer that launches kernels")
    return failure


def _kernel(raw: Any, area: Area) -> Kernel:
    """A kernel from the tracer's words; ProtocolViolation where they are not as they must be."""
    fits = isinstance(raw, dict) and _matches(_KEY, raw.get("key")) and _matches(_NAME, raw.get("name"))
    fits = fits and all(type(raw.get(key)) is bool for key in ("fusion", "tuned"))
    fits = fits and type(raw.get("ptx_options")) is str and isinstance(raw.get("metadata"), dict)
    fits = fits and len(json.dumps(raw["metadata"])) <= MAX_METADATA and raw["metadata"].get("hash") == raw["key"]
    if not fits:
        raise ProtocolViolation("a kernel described wrongly")
    try:
        slot = Slot.parse(raw.get("ptx"), area.size)
    except NotSerializable as error:
        raise ProtocolViolation(str(error)) from error
    if slot.dtype != "uint8" or len(slot.shape) != 1 or slot.stride != (1,) or not 0 < slot.nbytes <= MAX_PTX:
        raise ProtocolViolation("PTX described wrongly")
    return Kernel(
        raw["key"],
        raw["name"],
        raw["metadata"],
        bytes(area.view(slot).numpy()),
        raw["fusion"],
        raw["ptx_options"],
        _signature(raw.get("signature")),
        raw["tuned"],
    )


def _signature(raw: Any, depth: int = 0) -> tuple:
    if not isinstance(raw, list) or len(raw) > MAX_ARGUMENTS or depth > 4:
        raise ProtocolViolation("a kernel's signature described wrongly")
    if not all(isinstance(kind, list) or _matches(_TYPE, kind) for kind in raw):
        raise ProtocolViolation("a kernel's signature holds a type that there is not")
    return tuple(_signature(kind, depth + 1) if isinstance(kind, list) else kind for kind in raw)


def _list(raw: Any) -> list:
    if not isinstance(raw, list) or len(raw) > MAX_KERNELS:
        raise ProtocolViolation("a list that is none, or too long")
    return raw


def _matches(pattern: re.Pattern, value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _launcher_source(kernel: Kernel) -> str:
    """The C module through which Triton before 3.7 launches kernels with this signature."""
    described = kernel.metadata.get("tensordesc_meta")
    try:
        return launching.make_launcher({}, dict(enumerate(kernel.signature)), described)
    except (KeyError, TypeError, AssertionError, AttributeError, IndexError) as error:
        raise ProtocolViolation(f"a kernel's signature that cannot be launched: {error!r}") from error


def _module_key(source: str) -> str:
    return cache._base32(hashlib.sha256((source + build.platform_key()).encode()).hexdigest())


def _module(source: str, name: str, shared: Path) -> Path | None:
    """A C module, built unless it is there; None where there is no CUDA driver to link with."""
    place = shared / _module_key(source) / f"{name}{_SUFFIX}"
    if place.exists():
        return place
    try:
        libraries = launching.library_dirs()
    except (AssertionError, OSError, subprocess.CalledProcessError):
        return None
    with tempfile.TemporaryDirectory(prefix="drkernel-build-") as private:
        text = Path(private, f"{name}.c")
        text.write_text(source)
        built = build._build(name, str(text), private, libraries, launching.include_dirs, launching.libraries, [])
        _place(Path(built), place)
    return place


def _place(path: Path, place: Path) -> None:
    """Puts a file at a second place, whole or not at all: as a link where the file system allows it."""
    if place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{os.getpid()}.{time.monotonic_ns()}")
    try:
        os.link(path, fresh)
    except OSError:
        shutil.copyfile(path, fresh)
    os.replace(fresh, place)
