"""Compiled kernels by key: a compile worker writes them, and a runner looks them up and never compiles.

A kernel's key is Triton's own hash of its source, argument types, constants, options and compiler. So both sides must
run the same Triton with the same values of these environment variables (unset is fine):

    all that get_cache_invalidating_env_vars() reads, TRITON_DEBUG, TRITON_DEFAULT_FP_FUSION, TRITON_OVERRIDE_ARCH,
    TRITON_INSTRUMENTATION_MODE, TRITON_LIBDEVICE_PATH, TRITON_PTXAS_PATH, TRITON_MOCK_PTX_VERSION, PTXAS_OPTIONS

A kernel has the folder `<base32 of the key>` with `<name>.cubin`, `<name>.json` and `__grp__<name>.json`, as Triton
would write them, or `failure.json` (a `Failure`) where it does not compile.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import triton
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel, make_backend
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct
from triton.runtime import cache
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.errors import PTXASError

from drkernel.judge.boundary.cuda.kernel_description import describe

HOPPER = GPUTarget("cuda", 90, 32)
FAILURE = "failure.json"
MAX_KERNELS = 256
"""Kernels of one submission that are compiled before it gets a GPU."""
_COMPILATION = (CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct)


class Failure(msgspec.Struct):
    """Why a kernel does not compile."""

    type: str
    """The error's class."""
    message: str
    line: int | None
    """Of the submission."""


class MissingKernel(BaseException):
    """A launch needs a kernel that was not compiled ahead.

    It is no Exception, so that a submission does not catch it with its own.
    """

    def __init__(self, description: dict[str, Any]):
        super().__init__(f"kernel {description.get('kernel')} was not compiled ahead")
        self.description = description


class ReadOnlyCache(cache.CacheManager):
    """Triton's file cache, never written to. A group's files are looked up beside it, so that folders can be moved."""

    def __init__(self, key: str, override: bool = False, dump: bool = False):
        self._folder = Path(knobs.cache.dir) / key

    def get_file(self, filename: str) -> str | None:
        path = self._folder / filename
        return str(path) if path.exists() else None

    def get_group(self, filename: str) -> dict[str, str] | None:
        if (path := self.get_file(f"__grp__{filename}")) is None:
            return None
        names = json.loads(Path(path).read_text())["child_paths"]
        return {name: str(self._folder / name) for name in names}

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        return str(self._folder / filename)

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        return str(self._folder / filename)


def prepare(target: GPUTarget = HOPPER) -> None:
    """Fills Triton's caches about itself and its tools; from then on a key costs no process and no large file."""
    backend = make_backend(target)
    cache.triton_key()
    backend.hash()
    options = backend.parse_options({})
    options.hash()
    from triton.backends.nvidia.compiler import get_ptx_version_from_options

    get_ptx_version_from_options(options, target.arch)


def key_of(src: ASTSource, target: GPUTarget, options: dict[str, Any] | None) -> str:
    """The hash under which Triton files this kernel: 64 hex digits."""
    backend = make_backend(target)
    parsed = backend.parse_options({**(options or {}), **src.parse_options()})
    text = cache.get_cache_key(src, backend, parsed, env_vars=get_cache_invalidating_env_vars())
    return hashlib.sha256(text.encode()).hexdigest()


def file_name(src: ASTSource) -> str:
    """What the files of a kernel are called, without suffix."""
    return src.name[:150]


def replace_compile(compile: Callable) -> None:
    """Puts a function (src, target=None, options=None, _env_vars=None) in the place of triton.compile."""
    triton.compile = triton.compiler.compile = triton.compiler.compiler.compile = compile


def install_cache_only() -> list[dict[str, Any]]:
    """Makes every launch from now on take its kernel from TRITON_CACHE_DIR, or raise what its compilation raised.

    Returns:
        The list that receives the description of each kernel that was not there; its launch raised MissingKernel.
        An autotuner looks up all its configurations before it raises.
    """
    missing: list[dict[str, Any]] = []
    knobs.cache.manager_class = ReadOnlyCache

    def look_up(
        src: Any, target: GPUTarget | None = None, options: dict | None = None, _env_vars: Any = None
    ) -> CompiledKernel:
        if not isinstance(src, ASTSource):
            raise NotImplementedError("only functions under @triton.jit can be compiled here")
        key = key_of(src, target or driver.active.get_current_target(), options)
        files = ReadOnlyCache(cache._base32(key))
        if group := files.get_group(f"{file_name(src)}.json"):
            return CompiledKernel(src, group, key)
        if failure := files.get_file(FAILURE):
            raise as_raised(msgspec.json.decode(Path(failure).read_bytes(), type=Failure))
        missing.append(describe(src, options))
        raise MissingKernel(missing[-1])

    replace_compile(look_up)
    _look_up_all_configurations(missing)
    return missing


def _look_up_all_configurations(missing: list[dict[str, Any]]) -> None:
    bench, run = Autotuner._bench, Autotuner.run

    @functools.wraps(bench)
    def bench_or_infinite(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        try:
            return bench(self, *args, **kwargs)
        except MissingKernel:
            return [float("inf")] * 3

    @functools.wraps(run)
    def run_or_missing(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        before = len(missing)
        result = run(self, *args, **kwargs)
        if len(missing) > before:
            raise MissingKernel(missing[before])
        return result

    replaced = {"_bench": bench_or_infinite, "run": run_or_missing}
    for name, function in replaced.items():
        setattr(Autotuner, name, function)


def as_raised(failure: Failure) -> Exception:
    """An error of the class that the compilation raised, or of one that an autotuner treats the same."""
    kind, message = failure.type, failure.message
    if kind == PTXASError.__name__:
        return PTXASError(message)
    for known in _COMPILATION:
        if kind == known.__name__:
            error = known.__new__(known)
            error.src, error.node, error.error_message, error.message = None, None, message, message
            return error
    return RuntimeError(f"{kind}: {message}")


def folder_of(key: str, root: Path) -> Path:
    """Where the files of the kernel with this key (64 hex digits) lie under a cache folder."""
    return root / cache._base32(key)


def known_keys(root: Path) -> list[str]:
    """The keys of all kernels that lie compiled under a cache folder."""
    folders = (path.parent.name for path in root.glob("*/__grp__*.json"))
    return [base64.b32decode(name + "=" * (-len(name) % 8)).hex() for name in folders if len(name) == 52]


def known_names(root: Path) -> set[str]:
    """The names of all kernels that lie compiled under a cache folder, as the GPU knows them."""
    return {path.name.removeprefix("__grp__").removesuffix(".json") for path in root.glob("*/__grp__*.json")}


def write_group(folder: Path, name: str, files: dict[str, bytes]) -> None:
    """Writes the files of a kernel as Triton's FileCacheManager expects them; the group's own file comes last."""
    group = json.dumps({"child_paths": {file: str(folder / file) for file in files}}).encode()
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in (files | {f"__grp__{name}.json": group}).items():
        (folder / file).write_bytes(data)


def write_failure(folder: Path, failure: Failure) -> None:
    """Marks a kernel as one that does not compile."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FAILURE).write_bytes(msgspec.json.encode(failure))
