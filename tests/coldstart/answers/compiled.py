"""Takes the kernels of answers through Triton's front end, as for a GPU, without one; started by test_answers.py.

Usage: compiled.py COUNT DTYPE. Prints as JSON how many kernels there were, and what was refused. The interpreter runs
what the compiler does not take: variables that change their type in a loop, for example.
"""

import importlib.util
import json
import sys
import tempfile
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from drkernel.coldstart.answers.grades import answers
from drkernel.tasks.generators.graphs.draw import FAMILIES
from drkernel.tasks.generators.graphs.stream import families_of, stream
from drkernel.tasks.module import Reference
from drkernel.types import Task

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int64": "i64", "bool": "i1"}
_seen: set[str] = set()


def compile_only(function: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
    """Instead of a launch: the kernel becomes Triton IR for the types and constants of this call."""
    values = dict(zip(function.arg_names, args, strict=False)) | options
    constants = {(p.num,): values[p.name] for p in function.params if p.is_constexpr}
    kinds = {p.name: "constexpr" if p.is_constexpr else _type(values[p.name]) for p in function.params}
    key = repr((function.src, kinds, constants))
    if key not in _seen:
        backend, context = make_backend(TARGET), ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        chosen = backend.parse_options({})
        implementation, modules = backend.get_codegen_implementation(chosen), backend.get_module_map()
        ASTSource(function, kinds, constants).make_ir(TARGET, chosen, implementation, modules, context)
        _seen.add(key)


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"*{TYPES[str(value.dtype).removeprefix('torch.')]}"
    return "i32" if isinstance(value, int) else "fp32"


def load(path: Path, source: str) -> ModuleType:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refusal(task: Task, source: str) -> str:
    """What the front end says against the kernels of an answer; empty where it takes them."""
    reference = Reference(task, dict(task.small or {}))
    args, kwargs = reference.init_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            answer = load(Path(folder) / "answer.py", source).ModelNew(*args, **kwargs).eval()
            with torch.no_grad():
                answer(*reference.inputs(1))
        except Exception as error:
            return f"{task.id}: {type(error).__name__}: {error} {error.__cause__ or ''}"
    return ""


def main() -> None:
    count, dtype = sys.argv[1:]
    JITFunction.run = compile_only
    Autotuner.run = lambda self, *args, **kwargs: self.fn.run(*args, **{**kwargs, **self.configs[0].kwargs})
    tasks = islice(stream("train", 31, families_of(dtype, list(FAMILIES)), dtype), int(count))
    refused = [
        text
        for task in tasks
        for answer in answers(task, wrong=0)
        if answer.kind in ("fused", "best") and (text := refusal(task, answer.source))
    ]
    json.dump({"kernels": len(_seen), "refused": refused}, sys.stdout)


if __name__ == "__main__":
    main()
