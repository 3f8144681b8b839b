"""Runs in a tracer: a process without a GPU that finds the kernels of one submission and compiles them up to PTX.

The submission runs on meta tensors that pass for CUDA tensors, so that Triton specialises its kernels as on a GPU. No
launch happens. Everything here runs beside the submission, which may have taken the process over. Nothing that it
replies is believed.

Requests: `load` (source, name, known: keys that need no compiling), `trace` (a precompile.Call), `missing`
(descriptions). The reply to each is a precompile.TracerReply.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import socket
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import nn
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource
from triton.compiler.errors import CompilationError
from triton.runtime.autotuner import Autotuner
from triton.runtime.cache import CacheManager
from triton.runtime.jit import JITCallable, JITFunction, get_jit_fn_file_line

from drkernel.judge.boundary import shared_tensors, warm_up
from drkernel.judge.boundary.cuda import kernel_cache, kernel_description
from drkernel.judge.boundary.cuda.kernel_cache import MAX_KERNELS
from drkernel.judge.boundary.sandbox import Sandbox
from drkernel.judge.boundary.shared_tensors import DTYPES, Area, HostArea, NotSerializable
from drkernel.judge.untrusted import runner
from drkernel.judge.untrusted.cuda import meta_as_cuda

_MAX_FAILURE = 1000
"""Characters of each failure's message: all of them and all kernels' metadata must fit into one answer."""
_DEFINITE = (SyntaxError, ImportError, NameError)
"""Errors of a trace that would happen on a GPU, too."""
_TRANSIENT = (MemoryError, OSError)
"""Errors of a compilation that do not come from the kernel."""


def prepare(target: GPUTarget = kernel_cache.HOPPER) -> None:
    """Sets up what all tracers share; called once, in the zygote."""
    importlib.import_module("torch._dynamo")  # custom operators import it at their first call

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kernel_cache.prepare(target)
    _patch_triton(target)
    meta_as_cuda.install()
    _warm_up()


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
        _COMPILED.clear()

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
            for kernel in _COMPILED.take_kernels():
                kernels.append(self._with_ptx(kernel))
        except NotSerializable as full:
            error = error or full
        return {
            "kernels": kernels,
            "failures": [_failure(key, error, tuned) for key, error, tuned in _COMPILED.take_failures()],
            "error": error and _described(error),
            "definite": isinstance(error, _DEFINITE)
            or _COMPILED.is_compile_error(error)
            or str(error) == self._no_such_class,
        }

    def _load_tracing(self, source: str, name: str, known: list[str]) -> None:
        _COMPILED.known = set(known)
        self._built.clear()
        self._no_such_class = f"module 'submission' has no attribute '{name}'"
        self._load(source, name)

    def _trace(self, init: Any, args: Any, metas: list, train: bool) -> None:
        model = self._model(init, metas).train(train)
        with torch.no_grad():
            model(*_values(args, metas))

    def _missing(self, missing: list[dict[str, Any]]) -> None:
        """Compiles those that compile. Whether the submission can do without the others shows at their launch."""
        _COMPILED.tuning += 1
        for description in missing:
            with contextlib.suppress(Exception):
                src, options = kernel_description.load(description, "submission")
                _compile(src, None, options)
        _COMPILED.tuning -= 1

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


def _values(tree: Any, metas: list) -> Any:
    """Values around one meta tensor for each of `metas` [dtype, shape, stride]."""
    tensors = [
        torch.empty_strided(shape, stride, dtype=DTYPES[kind], device=meta_as_cuda.META)
        for kind, shape, stride in metas
    ]
    return shared_tensors.decode(tree, tensors.__getitem__)


class _ReachedPtx(Exception):
    """A compilation has reached PTX. The compile worker goes on from there, with ptxas."""

    def __init__(self, ptx: str, metadata: dict[str, Any], options: Any):
        super().__init__()
        self.ptx, self.metadata, self.options = ptx, metadata, options


class _TooManyKernels(Exception):
    """The submission launches more kernels than can be compiled."""


class _Compiled:
    """What was compiled, by key. A process has one, which the patches of Triton use."""

    def __init__(self) -> None:
        self.gpu = kernel_cache.HOPPER
        self.clear()

    def clear(self) -> None:
        self.known: set[str] = set()
        self.tuning = 0
        """How many autotuners with a choice are running."""
        self.metadata: dict[str, dict[str, Any]] = {}
        """By key."""
        self._kernels: dict[str, dict[str, Any]] = {}
        self._errors: dict[str, Exception] = {}
        self._new_errors: list[tuple[str, Exception, bool]] = []

    def look_up(self, key: str) -> dict[str, Any] | None:
        """The metadata of a kernel that was compiled; what it raised is raised again."""
        if key in self._errors:
            raise self._errors[key]
        if key in self.metadata:
            if key in self._kernels and not self.tuning:
                self._kernels[key]["tuned"] = False
            return self.metadata[key]
        if len(self.metadata) + len(self._errors) >= MAX_KERNELS:
            raise _TooManyKernels(f"more than {MAX_KERNELS} kernels")
        return None

    def add(self, key: str, src: ASTSource, reached: _ReachedPtx) -> None:
        metadata = json.loads(json.dumps(reached.metadata, default=vars))
        self.metadata[key] = metadata
        self._kernels[key] = {
            "key": key,
            "name": kernel_cache.file_name(src),
            "metadata": metadata,
            "ptx": reached.ptx,
            "fusion": bool(reached.options.enable_fp_fusion),
            "ptx_options": reached.options.ptx_options or "",
            "signature": list(src.signature.values()),
            "tuned": self.tuning > 0,
        }

    def fail(self, key: str, error: Exception) -> None:
        self._errors[key] = error
        self._new_errors.append((key, error, self.tuning > 0))

    def is_compile_error(self, error: BaseException | None) -> bool:
        return error is not None and any(error is known for known in self._errors.values())

    def take_kernels(self) -> list[dict[str, Any]]:
        kernels, self._kernels = self._kernels, {}
        return list(kernels.values())

    def take_failures(self) -> list[tuple[str, Exception, bool]]:
        errors, self._new_errors = self._new_errors, []
        return errors


_COMPILED = _Compiled()


class _NoCache(CacheManager):
    """Finds nothing and keeps nothing."""

    def get_file(self, filename: str) -> None:
        return None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        return filename

    def get_group(self, filename: str) -> None:
        return None

    def put_group(self, filename: str, group: dict[str, str]) -> None:
        return None


class _Kernel:
    """Takes the place of triton's CompiledKernel and launches nothing. All its facts are true but `n_regs`, a guess."""

    n_regs, n_spills, n_max_threads = 64, 0, 1024
    module = function = None

    def __init__(self, src: ASTSource, key: str, metadata: dict[str, Any]):
        self.src, self.hash, self.name = src, key, metadata.get("name", src.name)
        self.metadata = SimpleNamespace(**{"shared": 0, "num_warps": 4, "num_ctas": 1, **metadata})
        self.packed_metadata = (self.metadata.num_warps, self.metadata.num_ctas, self.metadata.shared)
        self.asm: dict[str, Any] = {}

    def _init_handles(self) -> None:
        pass

    def launch_metadata(self, *_: Any) -> None:
        pass

    def run(self, *_: Any, **__: Any) -> None:
        pass

    def __getitem__(self, grid: Any) -> Callable:
        return self.run


_TRITON_COMPILE = triton.compile


def _compile(src: Any, target: Any = None, options: dict | None = None, _env_vars: Any = None) -> _Kernel:
    """In the place of triton.compile."""
    if not isinstance(src, ASTSource):
        raise NotImplementedError("only functions under @triton.jit can be compiled here")
    key = kernel_cache.key_of(src, _COMPILED.gpu, options)
    if key in _COMPILED.known:
        return _Kernel(src, key, {})
    metadata = _COMPILED.look_up(key)
    if metadata is None:
        try:
            _TRITON_COMPILE(src, target=_COMPILED.gpu, options=dict(options or {}))
        except _ReachedPtx as reached:
            _COMPILED.add(key, src, reached)
            metadata = _COMPILED.metadata[key]
        except _TRANSIENT:
            raise
        except Exception as error:
            _COMPILED.fail(key, error)
            raise
        else:
            raise RuntimeError("a compilation that does not end at PTX")
    return _Kernel(src, key, metadata)


def _patch_triton(gpu: GPUTarget) -> None:
    _COMPILED.gpu = gpu

    def make_cubin(self: Any, src: str, metadata: dict[str, Any], opt: Any, capability: int) -> bytes:
        raise _ReachedPtx(src, metadata, opt)

    def compile_only(run: Callable, self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return run(self, *args, grid=grid, warmup=True, **kwargs)

    def count_tuners(run: Callable, self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        choice = len(self.configs) > 1
        _COMPILED.tuning += choice
        try:
            return run(self, *args, **kwargs)
        finally:
            _COMPILED.tuning -= choice

    kernel_cache.replace_compile(_compile)
    triton.knobs.cache.manager_class = _NoCache
    CUDABackend.make_cubin = make_cubin
    JITFunction.run = _method(compile_only, JITFunction.run)
    Autotuner.run = _method(count_tuners, Autotuner.run)
    Autotuner.do_bench = property(lambda self: _once, lambda self, value: None)
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = _once


def _method(wrapper: Callable, original: Callable) -> Callable:
    return lambda self, *args, **kwargs: wrapper(original, self, *args, **kwargs)


def _once(fn: Callable, *_: Any, quantiles: Any = None, **__: Any) -> Any:
    """In the place of a benchmark."""
    fn()
    return [1.0] * len(quantiles) if quantiles else 1.0


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
    if answers[-1]["error"] or len(answers[-1]["kernels"]) != 1:
        raise RuntimeError(f"kernels cannot be compiled ahead: {[answer['error'] for answer in answers]}")
    del sys.modules["submission"]
    _COMPILED.clear()
