"""Runs in a tracer: a process without a GPU that finds the kernels of one submission and compiles them up to PTX, or,
for the simulated device, until their shared memory is known (`prepare_front_end`).

The submission runs on meta tensors that pass for CUDA tensors, so that Triton specialises its kernels as on a GPU. No
launch happens. Everything here runs beside the submission, which may have taken the process over. Nothing that it
replies is believed.

Requests: `load` (source, name, known: keys that need no compiling), `trace` (a precompile.Call, and perhaps `guess`:
what all numbers are that are read back; else that ends the trace), `missing`
(descriptions). The reply to each is a precompile.TracerReply.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from triton.backends.compiler import GPUTarget
from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITCallable, get_jit_fn_file_line
from triton.tools.tensor_descriptor import TensorDescriptor

from drkernel.judge.boundary import shared_tensors, warm_up
from drkernel.judge.boundary.cuda import kernel_cache, kernel_description
from drkernel.judge.boundary.sandbox import Sandbox
from drkernel.judge.boundary.shared_tensors import DTYPES, Area, HostArea, NotSerializable
from drkernel.judge.untrusted import runner
from drkernel.judge.untrusted.cuda import compiling, meta_as_cuda
from drkernel.judge.untrusted.cuda.compiling import COMPILED

_MAX_FAILURE = 1000
"""Characters of each failure's message: all of them and all kernels' metadata must fit into one answer."""
_DEFINITE = (SyntaxError, ImportError, NameError)
"""Errors of a trace that would happen on a GPU, too."""


def prepare(target: GPUTarget = kernel_cache.HOPPER) -> None:
    """Sets up what all tracers share; called once, in the zygote."""
    importlib.import_module("torch._dynamo")  # custom operators import it at their first call

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kernel_cache.prepare(target)
    compiling.patch_triton(target)
    meta_as_cuda.install()
    _warm_up()


def prepare_front_end() -> None:
    """As `prepare`, for tracers that compile no further than the shared memory of each kernel is known: a third of the
    time, and what follows (LLVM, ptxas) refuses hardly anything. They report no kernels, but failures."""
    compiling.stop_at_shared_memory()
    prepare()


def main(connection: socket.socket, areas: list[Area], sandbox: Sandbox) -> None:
    """Locks the process in and answers requests until the connection closes. Never returns."""
    runner.leave_session()
    sandbox.enter()
    runner.serve(runner.close_others(connection), Tracer(*areas).answer)


class Tracer(runner.Runner):
    """The submission's module, its models, and the kernels that they were seen to launch."""

    def __init__(self, inputs: Area, outputs: Area):
        super().__init__(inputs, outputs)
        self._built: dict[str, nn.Module] = {}
        self._no_such_class = ""
        COMPILED.clear()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.outputs.clear()
        methods: dict[str, Callable[..., None]] = {
            "load": self._load_tracing,
            "trace": self._trace,
            "missing": self._missing,
        }
        method = methods[request.pop("do")]
        error: BaseException | None = None
        try:
            method(**request)
        except BaseException as raised:
            error = raised
        kernels = []
        try:
            for kernel in COMPILED.take_kernels():
                kernels.append(self._with_ptx(kernel))
        except NotSerializable as full:
            error = error or full
        return {
            "kernels": kernels,
            "failures": [_failure(key, error, tuned) for key, error, tuned in COMPILED.take_failures()],
            "error": error and _described(error),
            "launched": COMPILED.launched,
            "definite": isinstance(error, _DEFINITE)
            or COMPILED.is_compile_error(error)
            or _is_of_a_descriptor(error)
            or str(error) == self._no_such_class,
        }

    def _load_tracing(self, source: str, name: str, known: list[str]) -> None:
        COMPILED.known = set(known)
        self._built.clear()
        self._no_such_class = f"module 'submission' has no attribute '{name}'"
        self._load(source, name)

    def _trace(self, init: Any, args: Any, metas: list, train: bool, guess: int | None = None) -> None:
        with meta_as_cuda.MODE.guessing(guess), torch.no_grad():
            model = self._model(init, metas).train(train)
            model(*_values(args, metas))

    def _missing(self, missing: list[dict[str, Any]]) -> None:
        """Compiles those that compile. Whether the submission can do without the others shows at their launch."""
        COMPILED.tuning += 1
        for description in missing:
            with contextlib.suppress(Exception):
                src, options = kernel_description.load(description, "submission")
                compiling.compile(src, None, options)
        COMPILED.tuning -= 1

    def _model(self, init: Any, metas: list) -> nn.Module:
        """The model for these constructor arguments. Where a constructor reads values, it runs on tensors with data."""
        key = json.dumps([init, metas if '"tensor"' in json.dumps(init) else []])
        if key not in self._built:
            try:
                self._built[key] = self._construct(init, metas)
            except (RuntimeError, ValueError):
                with meta_as_cuda.MODE.tensors_with_data():
                    model = self._construct(init, metas)
                self._built[key] = meta_as_cuda.without_data(model)
        return self._built[key]

    def _construct(self, init: Any, metas: list) -> nn.Module:
        values, keywords = _values(init, metas)
        torch.manual_seed(0)
        model = self.build(*values, **keywords)
        if not isinstance(model, nn.Module):
            raise TypeError(f"{self.build.__name__} is not a torch.nn.Module")
        return model

    def _with_ptx(self, kernel: dict[str, Any]) -> dict[str, Any]:
        """As precompile.KernelReport: the PTX goes through shared memory."""
        text = bytearray(kernel["ptx"].encode())
        return kernel | {"ptx": self.outputs.put(torch.frombuffer(text, dtype=torch.uint8)).to_json()}


def _is_of_a_descriptor(error: BaseException | None) -> bool:
    """Whether Triton's descriptors refuse the sizes, strides or addresses of a tensor."""
    frames = list(traceback.walk_tb(error.__traceback__)) if error else []
    return bool(frames) and frames[-1][0].f_code in _DESCRIPTOR_CODES


_DESCRIPTOR_CODES = (TensorDescriptor.__post_init__.__code__, TensorDescriptor.from_tensor.__code__)


def _values(tree: Any, metas: list) -> Any:
    """Values around one meta tensor for each of `metas` [dtype, shape, stride]."""
    tensors = [
        torch.empty_strided(shape, stride, dtype=DTYPES[kind], device=meta_as_cuda.META)
        for kind, shape, stride in metas
    ]
    return shared_tensors.decode(tree, tensors.__getitem__, with_objects=True)


def _failure(key: str, error: Exception, tuned: bool) -> dict[str, Any]:
    described = _described(error)
    return {"key": key, "error": described | {"message": described["message"][:_MAX_FAILURE]}, "tuned": tuned}


def _described(error: BaseException) -> dict[str, Any]:
    """As runner.describe. An error in a kernel has the line in the kernel, and the deepest reason."""
    described = runner.describe(error)
    reason: BaseException | None = error
    while reason is not None:
        if isinstance(reason, CompilationError) and (line := _line(reason)):
            text = f"line {line}: {reason.error_message or _excerpt(reason)}"
            described |= {"message": text[: runner.MAX_TEXT], "line": line}
        elif isinstance(error, CompilationError) and not isinstance(reason, CompilationError):
            described["message"] = f"line {described['line']}: {reason}"[: runner.MAX_TEXT]
        reason = reason.__cause__
    return described


def _line(error: CompilationError) -> int | None:
    """The line of the submission at which the compiler stopped; it counts from the function's own."""
    if not hasattr(error.node, "lineno"):
        return None
    for value in vars(sys.modules.get("submission", object())).values():
        function = kernel_description.jit_function_of(value)
        if isinstance(function, JITCallable) and function.src == error.src:
            return get_jit_fn_file_line(function)[1] + error.node.lineno - 1
    return None


def _excerpt(error: CompilationError) -> str:
    return str(error).partition("\n")[2] or str(error)


def _warm_up() -> None:
    """Traces a small model once, so that the compiler's tables and torch's lazy imports are there in every fork."""
    tracer = Tracer(HostArea.create("warm", 2**12), HostArea.create("warm", 2**20))
    call = {"init": {"list": [{"list": []}, {"dict": []}]}, "args": {"list": [{"tensor": 0}]}, "train": False}
    requests = (
        {"do": "load", "source": warm_up.TRACER, "name": "ModelNew", "known": []},
        {"do": "trace", "metas": [["float32", [64, 64], [64, 1]]], **call},
    )
    answers = [tracer.answer(request) for request in requests]
    if answers[-1]["error"] or len(COMPILED.metadata) != 1:
        raise RuntimeError(f"kernels cannot be compiled ahead: {[answer['error'] for answer in answers]}")
    del sys.modules["submission"]
    COMPILED.clear()
