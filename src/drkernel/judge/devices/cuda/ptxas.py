"""Runs ptxas on untrusted PTX: with few options, in a folder of its own, within limits of time and memory."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
"""Triton's."""
PTXAS_S, PTXAS_MB = 60, 8192
"""Limits of one ptxas: CPU seconds (also of wall time), and MiB of address space."""
MAX_CUBIN = 64 * 2**20
_OPTION = re.compile(r"--?maxrregcount=[0-9]{1,3}|-O[0-3]|--opt-level=[0-3]|-dlcm=c[agsv]|-dscm=(wb|c[gs]|wt)|-v")


class Refused(Exception):
    """ptxas does not assemble this PTX."""


def assemble(ptx: bytes, fusion: bool, options: str, target: GPUTarget, deadline: float) -> bytes:
    """Assembles a kernel; returns its cubin.

    Args:
        fusion, options: Triton's `enable_fp_fusion` and `ptx_options`.
        deadline: on `time.monotonic()`'s clock.

    Raises:
        Refused: with the first lines that ptxas wrote.
    """
    extra = options.split()
    if not all(_OPTION.fullmatch(option) for option in extra):
        raise Refused("`ptx_options` may hold --maxrregcount=N, --opt-level=N, -dlcm=..., -dscm=... only")
    with tempfile.TemporaryDirectory(prefix="drkernel-ptxas-") as name:
        private = Path(name)
        source, cubin, log = private / "kernel.ptx", private / "kernel.cubin", private / "log"
        source.write_bytes(ptx)
        command = command_line(fusion, extra, target, str(source), str(cubin))
        status = _bounded(command, private, log, min(deadline - time.monotonic(), PTXAS_S))
        if status != 0 or not cubin.exists() or not 0 < cubin.stat().st_size <= MAX_CUBIN:
            with log.open("rb") as errors:
                text = errors.read(1000).decode(errors="replace").replace(name + "/", "")
            raise Refused(f"`ptxas` failed with {_ending(status)}\n{text}")
        return cubin.read_bytes()


def command_line(fusion: bool, options: list[str], target: GPUTarget, source: str, cubin: str) -> list[str]:
    """The command that Triton would run, under the same TRITON_DISABLE_LINE_INFO and DISABLE_PTXAS_OPT."""
    command = [nvidia.get_ptxas(target.arch).path] if hasattr(nvidia, "get_ptxas") else [knobs.nvidia.ptxas.path]
    if knobs.compilation.disable_line_info:
        command += ["-lineinfo", "-suppress-debug-info"]
    else:
        command += ["-g" if knobs.nvidia.disable_ptxas_opt else "-lineinfo"]
    command += [] if fusion else ["--fmad=false"]
    command += ["-v"]
    command += ["--opt-level", "0"] if knobs.nvidia.disable_ptxas_opt else []
    command += ["--regAllocOptLevel=2"] if VERSION >= (3, 7) else []
    return [*command, *options, f"--gpu-name={nvidia.sm_arch_from_capability(target.arch)}", source, "-o", cubin]


def _bounded(command: list[str], private: Path, log: Path, timeout_s: float) -> int | None:
    """The exit status of a program, in a folder of its own; None where it ran out of time."""
    with log.open("wb") as errors:
        program = subprocess.Popen(
            command,
            cwd=private,
            env={"TMPDIR": str(private), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    limits = {
        resource.RLIMIT_AS: PTXAS_MB * 2**20,
        resource.RLIMIT_CPU: PTXAS_S,
        resource.RLIMIT_FSIZE: MAX_CUBIN,
        resource.RLIMIT_CORE: 0,
    }
    try:
        for kind, limit in limits.items():  # not between fork and exec, where locks of other threads may be held
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(program.pid, kind, (limit, limit))
        return program.wait(max(timeout_s, 0.0))
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def _ending(status: int | None) -> str:
    if status is None:
        return "its time being up"
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"error code {status}"
