"""What takes the place of triton.compile in a tracer: kernels are compiled up to PTX, or until their shared memory is
known, and nothing is launched. What they are made of and why they fail is kept by key.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import triton
from triton._C.libtriton import nvidia
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource
from triton.runtime._allocation import NullAllocator
from triton.runtime.autotuner import Autotuner
from triton.runtime.cache import CacheManager
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from drkernel.judge.boundary.cuda import kernel_cache
from drkernel.judge.boundary.cuda.kernel_cache import MAX_KERNELS
from drkernel.judge.untrusted.fake_cuda import PROPERTIES

_TRANSIENT = (MemoryError, OSError)
"""Errors of a compilation that do not come from the kernel."""


class _Reached(Exception):
    """A compilation has gone as far as it shall: to PTX, from which the compile worker goes on with ptxas, or until the
    shared memory is known; `ptx` is empty then."""

    def __init__(self, ptx: str, metadata: dict[str, Any], options: Any):
        super().__init__()
        self.ptx, self.metadata, self.options = ptx, metadata, options


class _TooManyKernels(Exception):
    """The submission launches more kernels than can be compiled."""


class Compiled:
    """What was compiled, by key. A process has one, which the patches of Triton use."""

    def __init__(self) -> None:
        self.gpu = kernel_cache.HOPPER
        self.clear()

    def clear(self) -> None:
        self.known: set[str] = set()
        self.tuning = 0
        """How many autotuners with a choice are running."""
        self.launched = 0
        """How many launches have found a kernel that a GPU can load."""
        self.metadata: dict[str, dict[str, Any]] = {}
        """By key."""
        self._kernels: dict[str, dict[str, Any]] = {}
        self._errors: dict[str, Exception] = {}
        self._new_errors: list[tuple[str, Exception, bool]] = []
        self._unlaunched: list[Exception] = []

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

    def add(self, key: str, src: ASTSource, reached: _Reached) -> None:
        metadata = json.loads(json.dumps(reached.metadata, default=vars))
        self.metadata[key] = metadata
        if not reached.ptx:
            return
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

    def load(self, kernel: Kernel) -> None:
        """Loads a kernel that is launched. Raises OutOfResources where a GPU cannot, and RuntimeError where the launch
        would ask for memory and no allocator is set."""
        try:
            kernel._init_handles()
            kernel.allocate()
        except (OutOfResources, RuntimeError) as error:
            self._new_errors.append((kernel.hash, error, self.tuning > 0))
            self._unlaunched.append(error)
            raise
        self.launched += 1

    def is_compile_error(self, error: BaseException | None) -> bool:
        known = (*self._errors.values(), *self._unlaunched)
        return isinstance(error, OutOfResources) or any(error is one for one in known)

    def take_kernels(self) -> list[dict[str, Any]]:
        kernels, self._kernels = self._kernels, {}
        return list(kernels.values())

    def take_failures(self) -> list[tuple[str, Exception, bool]]:
        errors, self._new_errors = self._new_errors, []
        return errors


COMPILED = Compiled()


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


class Kernel:
    """Takes the place of triton's CompiledKernel and launches nothing. All its facts are true but `n_regs`, a guess."""

    n_regs, n_spills, n_max_threads = 64, 0, 1024
    module = function = None

    def __init__(self, src: ASTSource, key: str, metadata: dict[str, Any]):
        self.src, self.hash, self.name = src, key, metadata.get("name", src.name)
        self.metadata = SimpleNamespace(
            **{"shared": 0, "num_warps": 4, "num_ctas": 1, "global_scratch_size": 0} | metadata
        )
        self.packed_metadata = (self.metadata.num_warps, self.metadata.num_ctas, self.metadata.shared)
        self.asm: dict[str, Any] = {}

    def _init_handles(self) -> None:
        """Raises OutOfResources where a GPU could not load the kernel, as Triton's own."""
        facts, threads = self.metadata, 32 * self.metadata.num_warps
        for name, required, limit in (
            ("shared memory", facts.shared, PROPERTIES["shared_memory_per_block_optin"]),
            ("threads", threads, PROPERTIES["max_threads_per_block"]),
        ):
            if required > limit:
                raise OutOfResources(required, limit, name)

    def allocate(self) -> None:
        """Raises RuntimeError where a launch needs memory of its own, for descriptors, and no allocator is set."""
        allocator = triton.runtime._allocation._allocator.get()
        if self.metadata.global_scratch_size and isinstance(allocator, NullAllocator):
            allocator(self.metadata.global_scratch_size, 1, None)

    def launch_metadata(self, *_: Any) -> None:
        pass

    def run(self, *_: Any, **__: Any) -> None:
        self._init_handles()

    def __getitem__(self, grid: Any) -> Callable:
        return self.run


TRITON_COMPILE = triton.compile


def _up_to_shared_memory(
    make_llir: Callable, self: Any, src: Any, metadata: dict[str, Any], opt: Any, capability: int
) -> None:
    """Triton's own passes up to the one that makes LLVM's instructions; then what these would be told of memory."""

    def stop(passes: Any, *_: Any) -> None:
        passes.run(src, "shared memory")
        metadata["shared"] = src.get_int_attr("ttg.shared")
        metadata["global_scratch_size"] = src.get_int_attr("ttg.global_scratch_memory_size") or 0
        metadata["num_warps"] = src.get_int_attr("ttg.total-num-warps") or metadata["num_warps"]
        raise _Reached("", metadata, opt)

    with mock.patch.object(nvidia.passes.ttgpuir, "add_to_llvmir", stop):
        make_llir(self, src, metadata, opt, capability)


def compile(src: Any, target: Any = None, options: dict | None = None, _env_vars: Any = None) -> Kernel:
    """In the place of triton.compile."""
    if not isinstance(src, ASTSource):
        raise NotImplementedError("only functions under @triton.jit can be compiled here")
    key = kernel_cache.key_of(src, COMPILED.gpu, options)
    if key in COMPILED.known:
        return Kernel(src, key, {})
    metadata = COMPILED.look_up(key)
    if metadata is None:
        try:
            TRITON_COMPILE(src, target=COMPILED.gpu, options=dict(options or {}))
        except _Reached as reached:
            COMPILED.add(key, src, reached)
            metadata = COMPILED.metadata[key]
        except _TRANSIENT:
            raise
        except Exception as error:
            COMPILED.fail(key, error)
            raise
        else:
            raise RuntimeError("a compilation that does not end at PTX")
    return Kernel(src, key, metadata)


def stop_at_shared_memory() -> None:
    """From now on a compilation goes no further. To be called before `patch_triton`."""
    CUDABackend.make_llir = _method(_up_to_shared_memory, CUDABackend.make_llir)


def patch_triton(gpu: GPUTarget) -> None:
    """Puts `compile` in the place of Triton's own, for good; launches compile, and an autotuner tries each
    configuration once."""
    COMPILED.gpu = gpu

    def make_cubin(self: Any, src: str, metadata: dict[str, Any], opt: Any, capability: int) -> bytes:
        raise _Reached(src, metadata, opt)

    def compile_only(run: Callable, self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        if isinstance(kernel, Kernel) and not warmup:
            COMPILED.load(kernel)
        return kernel

    def count_tuners(run: Callable, self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        choice = len(self.configs) > 1
        COMPILED.tuning += choice
        try:
            return run(self, *args, **kwargs)
        finally:
            COMPILED.tuning -= choice

    kernel_cache.replace_compile(compile)
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
