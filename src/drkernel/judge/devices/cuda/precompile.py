"""Compiles a submission's kernels before it gets a GPU: a tracer finds them and makes PTX, ptxas makes the rest here.

This is trusted and runs in a compile worker; the tracer is not. A tracer's replies are parsed strictly: names match
patterns and sizes have limits. Nothing in them becomes a path, nor an argument of a program beyond a few options of
ptxas. The folder then holds the kernels as Triton's own cache would (see boundary/cuda/kernel_cache.py). Triton before
3.7 launches through a C module per signature; these modules are built here too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as launching
from triton.runtime import build, cache

from drkernel.judge.boundary.cuda.kernel_cache import (
    HOPPER,
    MAX_KERNELS,
    Failure,
    folder_of,
    known_keys,
    write_failure,
    write_group,
)
from drkernel.judge.boundary.cuda.kernel_description import Types, check_types
from drkernel.judge.boundary.framing import DeadlineExceeded, PeerClosed, ProtocolViolation
from drkernel.judge.boundary.parsing import parse
from drkernel.judge.boundary.records import recorded
from drkernel.judge.boundary.shared_tensors import Area, NotSerializable, Slot, encode
from drkernel.judge.devices.cuda import ptxas
from drkernel.judge.trusted import ptx_scan
from drkernel.judge.trusted.processes.failures import Failed, failure_of
from drkernel.judge.trusted.verdicts import verdict_of_crash
from drkernel.types import DrKernelError, Verdict

T = TypeVar("T")
MIN_TIMEOUT_S = 20.0
"""Seconds that compilation may take at least."""
MAX_PTX = 16 * 2**20
MAX_METADATA = 2**16
_THREADS = 4
Key = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""As kernel_cache.key_of returns it."""
_LAUNCHER, _UTILITIES = "__triton_launcher", "cuda_utils"
_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@dataclass(frozen=True)
class Call:
    """One call that a submission will get. Values are in the JSON form of shared_tensors, their tensors in `metas`."""

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
            return cls(encode(recorded(init), put), encode(recorded(args), put), metas, train)
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


class KernelReport(Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel that the tracer found and compiled up to PTX."""

    key: Key
    name: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,149}\Z")]
    """Of its files, without suffix."""
    metadata: dict[str, Any]
    """As Triton files it; of at most MAX_METADATA characters."""
    ptx: list[Any]
    """Where its PTX lies in the tracer's area: as Slot.parse takes it, for bytes."""
    fusion: bool
    ptx_options: str
    """Triton's options `enable_fp_fusion` and `ptx_options`."""
    signature: Types
    tuned: bool
    """Whether only autotuners launch it, so that they may go without it."""

    def __post_init__(self) -> None:
        if self.metadata.get("hash") != self.key or len(json.dumps(self.metadata)) > MAX_METADATA:
            raise ValueError("metadata of another kernel, or too long")
        check_types(self.signature)


class FailureReport(Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel that does not compile."""

    key: Key
    error: Any
    tuned: bool


class TracerReply(Struct, frozen=True, forbid_unknown_fields=True):
    """What the tracer replies to each question."""

    kernels: Annotated[list[KernelReport], Meta(max_length=MAX_KERNELS)]
    failures: Annotated[list[FailureReport], Meta(max_length=MAX_KERNELS)]
    error: Any
    """What ended the work on the question, or None."""
    definite: bool
    """Whether that error is the submission's own beyond doubt."""
    launched: int
    """How many launches have found a kernel that a GPU can load, so far."""


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
        PeerClosed, DeadlineExceeded, ProtocolViolation: for what the tracer does.
    """
    began = time.monotonic()
    work = _Compilation(folder, shared, began + timeout_s, target)
    seconds = {"load": 0.0, "trace": 0.0}
    questions: list[tuple[int | None, dict[str, Any]]] = [
        (None, {"do": "load", "source": source, "name": name, "known": known_keys(folder)})
    ]
    questions += [(i, {"do": "trace", **vars(call)}) for i, call in enumerate(calls)]
    questions += [(None, {"do": "missing", "missing": list(missing)})] if missing else []
    found: tuple[Failed, int | None] | None = None
    try:
        for index, question in questions:
            loading, start = question["do"] == "load", time.monotonic()
            reply = parse(process.request(question, work.deadline), TracerReply)
            seconds["load" if loading else "trace"] += time.monotonic() - start
            failure = work.start(reply, process.outputs)
            if failure and found is None:
                found = failure, index
            if (loading and reply.error) or (failure and index == 0):
                break
        refused = work.finish()
    finally:
        work.close()
    failure, call = found or (refused, None)
    return Compiled(work.kernels, failure, call, seconds | work.seconds | {"wall": time.monotonic() - began})


def outcome(process: Any, timeout_s: float, work: Callable[[], T]) -> T | Verdict:
    """What `work`, which asks a tracer, finds out, or the verdict on what the tracer does instead. Ends the tracer."""
    found: T | Verdict | None = None
    try:
        found = work()
    except PeerClosed:
        pass
    except DeadlineExceeded:
        found = Verdict("invalid", "timeout", f"its kernels were not compiled within {timeout_s:g} s")
    except ProtocolViolation as error:
        found = Verdict("invalid", "protocol_violation", str(error))
    finally:
        ending = process.end()
    return verdict_of_crash(ending) if found is None else found


def place_shared(shared: Path, folder: Path) -> None:
    """Puts what every process needs into a folder of kernels, too."""
    for path in shared.glob(f"*/{_UTILITIES}{_SUFFIX}"):
        _link_or_copy(path, folder / path.parent.name / path.name)


def warm_shared(shared: Path) -> bool:
    """Builds what every process needs to launch kernels; False where there is no CUDA driver to link with."""
    source = (Path(launching.__file__).parent / "driver.c").read_text()
    return _module(source, _UTILITIES, shared) is not None


class _Compilation:
    """The kernels of one submission on their way into its folder."""

    def __init__(self, folder: Path, shared: Path, deadline: float, target: GPUTarget):
        self.folder, self.shared, self.deadline, self.target = folder.absolute(), shared, deadline, target
        self.kernels = 0
        self.seconds = {"ptxas": 0.0, "launcher": 0.0}
        self._pool = ThreadPoolExecutor(_THREADS)
        self._jobs: dict[str, tuple[KernelReport, Future]] = {}
        self._launchers: dict[str, Future] = {}
        self._failures = 0
        self._products: frozenset[str] = frozenset()
        self.folder.mkdir(parents=True, exist_ok=True)
        place_shared(shared, self.folder)

    def start(self, reply: TracerReply, area: Area) -> Failed | None:
        """Starts on the kernels of a reply; returns the failure that it ends with, if it is definite."""
        for kernel in reply.kernels:
            ptx = _ptx(kernel, area)
            if kernel.key not in self._jobs:
                self._products |= ptx_scan.products(ptx)
                self._jobs[kernel.key] = kernel, self._pool.submit(self._assemble, kernel, ptx)
            if ptxas.VERSION < (3, 7):
                self._start_launcher(kernel)
        for report in reply.failures:
            self._write_failure(report)
        if len(self._jobs) + self._failures > MAX_KERNELS:
            raise ProtocolViolation(f"more than {MAX_KERNELS} kernels")
        failure = failed(reply.error) if reply.error else None
        return failure if reply.definite else None

    def finish(self) -> Failed | None:
        """Waits for all; returns why ptxas refused a kernel that the submission cannot go without."""
        refused = None
        reasons = [(kernel, job.result()) for kernel, job in self._jobs.values()]
        if time.monotonic() > self.deadline:
            raise DeadlineExceeded
        ptx_scan.write(self._products, self.folder)
        for kernel, reason in reasons:
            if reason is None:
                self.kernels += 1
                continue
            write_failure(folder_of(kernel.key, self.folder), Failure("PTXASError", reason, None))
            if not kernel.tuned:
                refused = refused or Failed("PTXASError", f"{kernel.name}: {reason}", None)
        for key, job in self._launchers.items():
            if path := job.result():
                _link_or_copy(path, self.folder / key / path.name)
        return refused

    def close(self) -> None:
        """Gives up what has not begun."""
        self._pool.shutdown(cancel_futures=True)

    def _assemble(self, kernel: KernelReport, ptx: bytes) -> str | None:
        """Writes a kernel's files; returns why there are none."""
        start = time.monotonic()
        try:
            cubin = ptxas.assemble(ptx, kernel.fusion, kernel.ptx_options, self.target, self.deadline)
        except ptxas.Refused as refused:
            return str(refused)
        finally:
            self.seconds["ptxas"] += time.monotonic() - start
        files = {f"{kernel.name}.cubin": cubin, f"{kernel.name}.json": json.dumps(kernel.metadata).encode()}
        write_group(folder_of(kernel.key, self.folder), kernel.name, files)
        return None

    def _start_launcher(self, kernel: KernelReport) -> None:
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

    def _write_failure(self, report: FailureReport) -> None:
        found = failed(report.error)
        self._failures += 1
        if self._failures <= MAX_KERNELS:
            failure = Failure(found.kind, found.message, found.line)
            write_failure(folder_of(report.key, self.folder), failure)


def failed(error: Any) -> Failed:
    """The tracer's description of an error, read."""
    failure = failure_of(error)
    if isinstance(failure, ProtocolViolation):
        raise failure
    if not isinstance(failure, Failed):
        raise ProtocolViolation("an error that no tracer meets")
    return failure


def _ptx(kernel: KernelReport, area: Area) -> bytes:
    try:
        slot = Slot.parse(kernel.ptx, area.size)
    except NotSerializable as error:
        raise ProtocolViolation(str(error)) from error
    if slot.dtype != "uint8" or len(slot.shape) != 1 or slot.stride != (1,) or not 0 < slot.nbytes <= MAX_PTX:
        raise ProtocolViolation(f"expected PTX of 1 to {MAX_PTX} bytes")
    return bytes(area.view(slot).numpy())


def _launcher_source(kernel: KernelReport) -> str:
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
        _link_or_copy(Path(built), place)
    return place


def _link_or_copy(path: Path, place: Path) -> None:
    """Puts a file at a second place, whole or not at all: as a hard link where the file system allows it."""
    if place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{os.getpid()}.{time.monotonic_ns()}")
    try:
        os.link(path, fresh)
    except OSError:
        shutil.copyfile(path, fresh)
    os.replace(fresh, place)
