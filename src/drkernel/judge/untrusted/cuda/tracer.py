"""The process that finds out which kernels a submission launches and compiles them up to PTX. It has no GPU.

The submission runs on tensors without data that pass for CUDA tensors, so Triton specialises on them as it would on the
GPU; no launch happens. Everything here runs beside code that may have taken the process over; nothing that is said here
is believed.

Questions: `load` (source, name, known: keys that need no compiling), `trace` (a precompile.Call), `missing`
(descriptions). Answers to the last two: {"kernels": [...], "failures": [...], "error": what ended it or None,
"definite": whether that error is the submission's own beyond doubt}.
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

from drkernel.judge.boundary import shared_tensors
from drkernel.judge.boundary.cuda import kernel_cache
from drkernel.judge.boundary.sandbox import Sandbox
from drkernel.judge.boundary.shared_tensors import DTYPES, Area, HostArea, NotSerializable
from drkernel.judge.untrusted import runner
from drkernel.judge.untrusted.cuda import fake_cuda

MAX_KERNELS = 256
_MAX_FAILURE = 1000
"""Characters of each failure's message: all of them and all kernels' metadata must fit into one answer."""
_OWN = (SyntaxError, ImportError, NameError)
_PASSING = (MemoryError, OSError)
"""Errors of a compilation that say nothing of the kernel."""


def prepare(target: GPUTarget = kernel_cache.HOPPER) -> None:
    """What all tracers share; done once in the zygote."""
    importlib.import_module("torch._dynamo")  # custom operators import it at their first call

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kernel_cache.prepare(target)
    _patch_triton(target)
    fake_cuda.install()
    _warm_up()


def main(connection: socket.socket, areas: list[Area], sandbox: Sandbox) -> None:
    """Locks the process in and answers questions until the connection closes. Never returns."""
    runner.leave_session()
    sandbox.enter()
    runner.serve(runner.close_others(connection), Tracer(*areas).answer)


class Tracer(runner.Runner):
    """The submission's module, its models, and the kernels that they were seen to launch."""

    def __init__(self, inputs: Area, outputs: Area):
        super().__init__(inputs, outputs)
        self._built: dict[str, nn.Module] = {}
        self._lacking = ""
        _BOOK.clear()

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        self.outputs.clear()
        do = {"load": self._load, "trace": self._trace, "missing": self._missing}[question.pop("do")]
        error = None
        try:
            do(**question)
        except BaseException as raised:
            error = raised
        kernels = []
        try:
            for kernel in _BOOK.take():
                kernels.append(self._exported(kernel))
        except NotSerializable as full:
            error = error or full
        return {
            "kernels": kernels,
            "failures": [_failure(key, error, tuned) for key, error, tuned in _BOOK.take_failures()],
            "error": error and _described(error),
            "definite": isinstance(error, _OWN) or _BOOK.raised(error) or str(error) == self._lacking,
        }

    def _load(self, source: str, name: str, known: list[str]) -> None:
        _BOOK.known = set(known)
        self._built.clear()
        self._lacking = f"module 'submission' has no attribute '{name}'"
        super()._load(source, name)

    def _trace(self, init: Any, args: Any, metas: list, train: bool) -> None:
        model = self._model(init, metas).train(train)
        with torch.no_grad():
            model(*_values(args, metas))

    def _missing(self, missing: list[dict[str, Any]]) -> None:
        """Compiles what can be; whether the submission can go without the rest shows where it is launched."""
        _BOOK.tuning += 1
        for description in missing:
            with contextlib.suppress(Exception):
                src, options = kernel_cache.parse_missing(description, "submission")
                _compile(src, None, options)
        _BOOK.tuning -= 1

    def _model(self, init: Any, metas: list) -> nn.Module:
        """The model for these constructor arguments. Where one needs values, it is built on real tensors."""
        key = json.dumps([init, metas if '"tensor"' in json.dumps(init) else []])
        if key not in self._built:
            try:
                self._built[key] = self._construct(init, metas)
            except (RuntimeError, ValueError):
                with fake_cuda.MODE.real():
                    model = self._construct(init, metas)
                self._built[key] = fake_cuda.without_data(model)
        return self._built[key]

    def _construct(self, init: Any, metas: list) -> nn.Module:
        values, keywords = _values(init, metas)
        torch.manual_seed(0)
        model = self.build(*values, **keywords)
        if not isinstance(model, nn.Module):
            raise TypeError(f"{self.build.__name__} is not a torch.nn.Module")
        return model

    def _exported(self, kernel: dict[str, Any]) -> dict[str, Any]:
        text = bytearray(kernel["ptx"].encode())
        return kernel | {"ptx": self.outputs.put(torch.frombuffer(text, dtype=torch.uint8)).to_json()}


def _values(tree: Any, metas: list) -> Any:
    """Values with a tensor without data for each meta [dtype, shape, stride]; shared where the index is the same."""
    tensors = [
        torch.empty_strided(shape, stride, dtype=DTYPES[kind], device=fake_cuda.META) for kind, shape, stride in metas
    ]
    return shared_tensors.decode(tree, tensors.__getitem__)


class _Handed(Exception):
    """A compilation has reached PTX: what is left needs ptxas, and happens elsewhere."""

    def __init__(self, ptx: str, metadata: dict[str, Any], options: Any):
        super().__init__()
        self.ptx, self.metadata, self.options = ptx, metadata, options


class _TooMany(Exception):
    """The submission launches more kernels than can be compiled."""


class _Book:
    """What was compiled, by key. There is one in a process, since the patches of Triton must find it."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.known: set[str] = set()
        self.tuning = 0
        """How many autotuners with a choice are running."""
        self.shared: dict[str, dict[str, Any]] = {}
        """Metadata by key."""
        self._kernels: dict[str, dict[str, Any]] = {}
        self._errors: dict[str, Exception] = {}
        self._news: list[tuple[str, Exception, bool]] = []

    def look_up(self, key: str) -> dict[str, Any] | None:
        """The metadata of a kernel that was compiled; what it raised is raised again."""
        if key in self._errors:
            raise self._errors[key]
        if key in self.shared:
            if key in self._kernels and not self.tuning:
                self._kernels[key]["tuned"] = False
            return self.shared[key]
        if len(self.shared) + len(self._errors) >= MAX_KERNELS:
            raise _TooMany(f"more than {MAX_KERNELS} kernels")
        return None

    def add(self, key: str, src: ASTSource, handed: _Handed) -> None:
        metadata = json.loads(json.dumps(handed.metadata, default=vars))
        self.shared[key] = metadata
        self._kernels[key] = {
            "key": key,
            "name": kernel_cache.file_name(src),
            "metadata": metadata,
            "ptx": handed.ptx,
            "fusion": bool(handed.options.enable_fp_fusion),
            "ptx_options": handed.options.ptx_options or "",
            "signature": list(src.signature.values()),
            "tuned": self.tuning > 0,
        }

    def fail(self, key: str, error: Exception) -> None:
        self._errors[key] = error
        self._news.append((key, error, self.tuning > 0))

    def raised(self, error: BaseException | None) -> bool:
        return error is not None and any(error is known for known in self._errors.values())

    def take(self) -> list[dict[str, Any]]:
        kernels, self._kernels = self._kernels, {}
        return list(kernels.values())

    def take_failures(self) -> list[tuple[str, Exception, bool]]:
        news, self._news = self._news, []
        return news


_BOOK = _Book()


class _NoCache(CacheManager):
    """Nothing is found and nothing is kept."""

    def get_file(self, filename: str) -> None:
        return None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        return filename

    def get_group(self, filename: str) -> None:
        return None

    def put_group(self, filename: str, group: dict[str, str]) -> None:
        return None


class _Kernel:
    """Passes for triton's CompiledKernel; does nothing. Its registers are a guess, what else it says is true."""

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


_compile: Callable = None  # type: ignore[assignment]  set by _patch_triton
_TRITON_COMPILE = triton.compile


def _patch_triton(gpu: GPUTarget) -> None:
    global _compile

    def compile(src: Any, target: Any = None, options: dict | None = None, _env_vars: Any = None) -> _Kernel:
        if not isinstance(src, ASTSource):
            raise NotImplementedError("only functions under @triton.jit can be compiled here")
        key = kernel_cache.key_of(src, gpu, options)
        if key in _BOOK.known:
            return _Kernel(src, key, {})
        if (metadata := _BOOK.look_up(key)) is None:
            try:
                _TRITON_COMPILE(src, target=gpu, options=dict(options or {}))
            except _Handed as handed:
                _BOOK.add(key, src, handed)
                metadata = _BOOK.shared[key]
            except _PASSING:
                raise
            except Exception as error:
                _BOOK.fail(key, error)
                raise
        return _Kernel(src, key, metadata)

    def make_cubin(self: Any, src: str, metadata: dict[str, Any], opt: Any, capability: int) -> bytes:
        raise _Handed(src, metadata, opt)

    def warm(run: Callable, self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return run(self, *args, grid=grid, warmup=True, **kwargs)

    def tune(run: Callable, self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        choice = len(self.configs) > 1
        _BOOK.tuning += choice
        try:
            return run(self, *args, **kwargs)
        finally:
            _BOOK.tuning -= choice

    _compile = compile
    kernel_cache.replace_compile(compile)
    triton.knobs.cache.manager_class = _NoCache
    CUDABackend.make_cubin = make_cubin
    JITFunction.run = _method(warm, JITFunction.run)
    Autotuner.run = _method(tune, Autotuner.run)
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
    """As runner.describe; for an error in a kernel with the line in the kernel, and the deepest reason."""
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
        function = kernel_cache._unwrapped(value)
        if isinstance(function, JITCallable) and function.src == error.src:
            return get_jit_fn_file_line(function)[1] + error.node.lineno - 1
    return None


def _excerpt(error: CompilationError) -> str:
    return str(error).partition("\n")[2] or str(error)


def _warm_up() -> None:
    """Traces a small model once, so that the compiler's tables and torch's lazy imports are there in every fork."""
    tracer = Tracer(HostArea.create("warm", 2**12), HostArea.create("warm", 2**20))
    call = {"init": {"list": [{"list": []}, {"dict": []}]}, "args": {"list": [{"tensor": 0}]}, "train": False}
    questions = (
        {"do": "load", "source": _WARM, "name": "ModelNew", "known": []},
        {"do": "trace", "metas": [["float32", [64, 64], [64, 1]]], **call},
    )
    answers = [tracer.answer(question) for question in questions]
    if answers[-1]["error"] or len(answers[-1]["kernels"]) != 1:
        raise RuntimeError(f"kernels cannot be compiled ahead: {[answer['error'] for answer in answers]}")
    del sys.modules["submission"]
    _BOOK.clear()


_WARM = """
import torch
import triton
import triton.language as tl

@triton.jit
def product(x, y, n: tl.constexpr):
    i = tl.arange(0, n)
    at = i[:, None] * n + i[None, :]
    z = tl.zeros((n, n), tl.float32)
    for _ in range(4):
        a = tl.load(x + at)
        z = tl.dot(a, a, z)
    tl.store(y + at, tl.exp(z - tl.max(z, 1)[:, None]) + tl.sum(z, 0)[None, :])

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64))

    def forward(self, x):
        y = torch.empty_like(x)
        product[(1,)](x, y, n=64)
        return (y + self.norm(x[1:])[0]).relu().softmax(-1).clone()
"""
