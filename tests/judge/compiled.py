"""What Triton itself says of the kernels of submissions: it compiles them for an H200, on a machine without a GPU.

    TRITON_INTERPRET=0 python -m tests.judge.compiled FOLDER

The kernels of each file under submissions/FOLDER are compiled down to the GPU's instructions for what they are given at
the published shape. One line for each file: its name, and the class of the error that is raised, or nothing.
"""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from drkernel.judge.untrusted.cuda import meta_as_cuda
from drkernel.tasks.module import Reference
from tests.judge.examples import examples, tasks

SHARED, THREADS = 227 * 1024, 1024
"""What a program may have on an H200: bytes of shared memory, and threads."""


def compile_only(run: Any, kernel: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
    """In the place of a launch."""
    compiled = run(kernel, *args, grid=grid, warmup=True, **options)
    assert compiled.metadata.target == GPUTarget("cuda", 90, 32)
    assert compiled.asm["cubin"]
    if compiled.metadata.shared > SHARED or 32 * compiled.metadata.num_warps > THREADS:
        raise OutOfResources(compiled.metadata.shared, SHARED, "shared memory or threads")


def main(folder: str) -> None:
    known, inputs = tasks(), {}
    for example in examples(folder):
        with torch.device("meta"):
            inputs[example.name] = Reference(known[example.task]).inputs(0)
    run = JITFunction.run
    JITFunction.run = lambda kernel, *args, **options: compile_only(run, kernel, *args, **options)
    meta_as_cuda.install()
    for example in examples(folder):
        module = sys.modules["submission"] = types.ModuleType("submission")
        module.__file__ = str(example.path)
        error = ""
        try:
            exec(compile(example.source, example.path, "exec"), module.__dict__)
            module.ModelNew()(*inputs[example.name])
        except Exception as raised:
            error = type(raised).__name__
        print(json.dumps({"name": example.name, "error": error}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
