"""What compiles for test_precompile.py, and looks up what was compiled as a runner on a GPU does."""

from __future__ import annotations

import os
import sys
import time
from multiprocessing.connection import Connection

import pytest

from drkernel.judge.boundary.cuda import kernel_cache
from drkernel.judge.boundary.sandbox import Limits
from drkernel.judge.devices.cuda import precompile
from drkernel.judge.trusted.processes.zygote import ProcessSpec, Zygote
from drkernel.judge.untrusted import runner
from drkernel.judge.untrusted.cuda import compiling, tracer

WORKSHOP = "workshop"
"""This module's name for a zygote: it is run as a script, so its folder is where modules are looked for first."""


def prepare_look_up() -> None:
    """A tracer's stage with Triton's own compile and cache, in which no stage of the compiler may run."""
    import triton
    from triton.backends.nvidia.compiler import CUDABackend

    tracer.prepare()
    triton.knobs.cache.reset()
    kernel_cache.replace_compile(compiling.TRITON_COMPILE)
    CUDABackend.add_stages = lambda *_: pytest.fail("a stage of the compiler ran")


class LookUp(tracer.Tracer):
    """What a runner on the GPU does, up to the launch itself."""

    def answer(self, question: dict) -> dict:
        met = kernel_cache.install_cache_only() if question["cache_only"] else []
        error = None
        try:
            self._load_tracing(question["source"], "ModelNew", [])
            self._trace(**question["call"])
        except BaseException as raised:
            error = {"type": type(raised).__name__, "message": str(raised)}
        return {"error": error, "met": met}


def look_up(connection, areas, sandbox) -> None:
    runner.serve(connection, LookUp(*areas).answer)


def main(pipe: Connection) -> None:
    """A process of its own for both zygotes: the simulated device's tests change Triton in theirs for good."""
    tracers = Zygote(
        Limits(host_memory_mib=8192, cpu_s=100), ProcessSpec(f"{tracer.__name__}:prepare", f"{tracer.__name__}:main")
    )
    lookups = Zygote(Limits(), ProcessSpec(f"{WORKSHOP}:prepare_look_up", f"{WORKSHOP}:look_up"))
    for zygote in (tracers, lookups):
        zygote.wait_ready()
    while True:
        source, calls, missing, folder, question, libcuda = pipe.recv()
        os.environ["TRITON_LIBCUDA_PATH"] = libcuda
        precompile.launching.libcuda_dirs.cache_clear()
        precompile.launching.library_dirs.cache_clear()
        process = (lookups if question else tracers).start({"TRITON_CACHE_DIR": str(folder / "kernels")})
        try:
            if question:
                pipe.send(
                    process.request({"source": source, "call": vars(calls[0]), **question}, time.monotonic() + 20)
                )
            else:
                folders = folder / "kernels", folder / "shared"
                compiled = precompile.precompile(process, source, "ModelNew", calls, missing, *folders, 100.0)
                failure = compiled.failure and (compiled.failure.kind, compiled.failure.message, compiled.failure.line)
                pipe.send({**vars(compiled), "failure": failure})
        finally:
            process.end()


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
