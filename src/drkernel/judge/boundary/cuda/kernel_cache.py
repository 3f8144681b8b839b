"""Compiled kernels by name: what the stage that compiles ahead writes, and what a runner looks up and never makes.

A kernel's key is Triton's own hash of its source, argument types, constants, options and compiler, so both sides must
run the same Triton with the same values of (unset is fine):

    all that get_cache_invalidating_env_vars() reads, TRITON_DEBUG, TRITON_DEFAULT_FP_FUSION, TRITON_OVERRIDE_ARCH,
    TRITON_INSTRUMENTATION_MODE, TRITON_LIBDEVICE_PATH, TRITON_PTXAS_PATH, TRITON_MOCK_PTX_VERSION, PTXAS_OPTIONS

A kernel has the folder `<base32 of the key>` with `<name>.cubin`, `<name>.json` and `__grp__<name>.json`, as Triton
would write them, or `failure.json` ({"type", "message", "line"}) where it does not compile.

The description of a missing kernel is JSON: {"kernel": place of the function, "signature": {argument: type},
"constants": [[path, value], ...], "attrs": [[path, value], ...], "options": {name: value}}. A type is a string or a
list of types. A path is a list of indices. A value is None, a bool, an int, a string, or an object with one key:
"float" (hex), "tuple", "list", "dict" (pairs), "tl" (a Triton dtype), "torch" (a torch dtype), "constexpr" or "jit".
The place of a jit function is its global name in its module, or "triton.<module>:<name>" for one of Triton's.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel, make_backend
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct
from triton.runtime import cache
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.driver import driver
from triton.runtime.errors import PTXASError
from triton.runtime.jit import JITFunction

from drkernel.judge.boundary.shared_tensors import NotSerializable

HOPPER = GPUTarget("cuda", 90, 32)
FAILURE = "failure.json"
MAX_KERNELS = 256
"""Kernels of one submission that are compiled before it gets a GPU."""
MAX_DEPTH = 8
_COMPILATION = (CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct)
_GLOBAL_DTYPES = {str(dtype): dtype for dtype in vars(tl).values() if isinstance(dtype, tl.dtype)}


class MissingKernel(BaseException):
    """A launch needs a kernel that was not compiled ahead. No Exception: a submission must not take it for its own."""

    def __init__(self, description: dict[str, Any]):
        super().__init__(f"kernel {description.get('kernel')} was not compiled ahead")
        self.description = description


class ReadOnlyCache(cache.CacheManager):
    """Triton's file cache without a write; a group is looked up beside its own file, so that folders can be moved."""

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
    """Fills what Triton remembers of itself and its tools; from then on a key costs no process and no large file."""
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
    """From now on every launch takes its kernel from TRITON_CACHE_DIR, or raises what its compilation raised.

    Returns:
        The list that receives the description of each kernel that was not there; its launch raised MissingKernel.
        An autotuner looks up all its configurations before it raises.
    """
    met: list[dict[str, Any]] = []
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
            raise as_raised(json.loads(Path(failure).read_text()))
        met.append(_describe(src, options))
        raise MissingKernel(met[-1])

    replace_compile(look_up)
    _look_up_all_configurations(met)
    return met


def _look_up_all_configurations(met: list[dict[str, Any]]) -> None:
    bench, run = Autotuner._bench, Autotuner.run

    @functools.wraps(bench)
    def patient(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        try:
            return bench(self, *args, **kwargs)
        except MissingKernel:
            return [float("inf")] * 3

    @functools.wraps(run)
    def complete(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        before = len(met)
        result = run(self, *args, **kwargs)
        if len(met) > before:
            raise MissingKernel(met[before])
        return result

    Autotuner._bench, Autotuner.run = patient, complete


def as_raised(failure: dict[str, Any]) -> Exception:
    """The error that a compilation raised, from its type and message; of a type that an autotuner treats the same."""
    kind, message = failure["type"], failure["message"]
    if kind == PTXASError.__name__:
        return PTXASError(message)
    for known in _COMPILATION:
        if kind == known.__name__:
            error = known.__new__(known)
            error.src, error.node, error.error_message, error.message = None, None, message, message
            return error
    return RuntimeError(f"{kind}: {message}")


def describe_missing(
    fn: JITFunction,
    signature: dict[str, Any],
    constexprs: dict[tuple[int, ...], Any],
    attrs: dict[tuple[int, ...], Any],
    options: dict[str, Any],
) -> dict[str, Any]:
    """The JSON form of a specialisation.

    Raises:
        NotSerializable: where a constant is no value, or a function has no global name.
    """
    return {
        "kernel": _place(fn),
        "signature": {name: _listed(kind) for name, kind in signature.items()},
        "constants": [[list(path), _pack(value)] for path, value in constexprs.items()],
        "attrs": [[list(path), _pack(value)] for path, value in attrs.items()],
        "options": {name: _pack(value) for name, value in options.items()},
    }


def _describe(src: ASTSource, options: dict[str, Any] | None) -> dict[str, Any]:
    try:
        return describe_missing(src.fn, src.signature, src.constants, src.attrs, options or {})
    except NotSerializable as error:
        return {"kernel": src.name, "unfit": str(error)}


def parse_missing(description: Any, module: str) -> tuple[ASTSource, dict[str, Any]]:
    """The kernel that a description is of, in the submission that was executed as this module, and its options.

    Raises:
        NotSerializable: for a description that is none, or that names no kernel of this module.
    """
    try:
        fn = _function(description["kernel"], module)
        signature = {str(name): _type(kind) for name, kind in description["signature"].items()}
        constants = {tuple(path): _unpack(value, module) for path, value in description["constants"]}
        attrs = {tuple(path): _unpack(value, module) for path, value in description["attrs"]}
        options = {str(name): _unpack(value, module) for name, value in description["options"].items()}
        return ASTSource(fn, signature, constants, attrs), options
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotSerializable(f"a missing kernel described wrongly: {error!r}") from error


def _place(fn: Any) -> str:
    if fn.__module__.startswith("triton."):
        return f"{fn.__module__}:{fn.__name__}"
    for name, value in fn.__globals__.items():
        if _unwrapped(value) is fn:
            return name
    raise NotSerializable(f"the jit function {fn.__name__} has no global name")


def _function(place: Any, module: str) -> Any:
    if not isinstance(place, str):
        raise NotSerializable("a jit function described wrongly")
    home, _, name = place.rpartition(":")
    if home and not home.startswith("triton."):
        raise NotSerializable(f"a jit function of {home}")
    found = _unwrapped(getattr(sys.modules[home or module], name))
    if not hasattr(found, "cache_key"):
        raise NotSerializable(f"{place} is no jit function")
    return found


def _unwrapped(value: Any) -> Any:
    while isinstance(value, (Autotuner, Heuristics)):
        value = value.fn
    return value


def _type(kind: Any) -> Any:
    return tuple(_type(part) for part in kind) if isinstance(kind, (list, tuple)) else str(kind)


def _listed(kind: Any) -> Any:
    return [_listed(part) for part in kind] if isinstance(kind, tuple) else kind


def _pack(value: Any, depth: int = 0) -> Any:
    kind = type(value)
    if depth > MAX_DEPTH:
        raise NotSerializable("a constant that is nested too deeply")
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return {"float": value.hex()}
    if kind in (tuple, list):
        return {kind.__name__: [_pack(part, depth + 1) for part in value]}
    if kind is dict:
        return {"dict": [[_pack(key, depth + 1), _pack(part, depth + 1)] for key, part in value.items()]}
    if isinstance(value, tl.dtype) and str(value) in _GLOBAL_DTYPES:
        return {"tl": str(value)}
    if isinstance(value, torch.dtype):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, tl.constexpr):
        return {"constexpr": _pack(value.value, depth + 1)}
    if hasattr(value, "cache_key") and hasattr(value, "__globals__"):
        return {"jit": _place(value)}
    raise NotSerializable(f"a constant of type {kind.__name__}")


def _unpack(data: Any, module: str) -> Any:
    if data is None or type(data) in (bool, int, str):
        return data
    ((kind, body),) = data.items()
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(_unpack(part, module) for part in body)
    if kind == "dict":
        return {_unpack(key, module): _unpack(part, module) for key, part in body}
    if kind == "constexpr":
        return tl.constexpr(_unpack(body, module))
    if kind == "torch":
        return torch.__dict__[body]
    readers = {"float": float.fromhex, "tl": _GLOBAL_DTYPES.__getitem__, "jit": lambda name: _function(name, module)}
    return readers[kind](body)


def folder_of(key: str, root: Path) -> Path:
    """Where the files of the kernel with this key (64 hex digits) lie under a cache folder."""
    return root / cache._base32(key)


def known_keys(root: Path) -> list[str]:
    """The keys of all kernels that lie compiled under a cache folder."""
    folders = (path.parent.name for path in root.glob("*/__grp__*.json"))
    return [base64.b32decode(name + "=" * (-len(name) % 8)).hex() for name in folders if len(name) == 52]


def write_group(folder: Path, name: str, files: dict[str, bytes]) -> None:
    """Writes the files of a kernel as Triton's FileCacheManager expects them; the group's own file comes last."""
    group = json.dumps({"child_paths": {file: str(folder / file) for file in files}}).encode()
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in (files | {f"__grp__{name}.json": group}).items():
        (folder / file).write_bytes(data)


def write_failure(folder: Path, kind: str, message: str, line: int | None) -> None:
    """Marks a kernel as one that does not compile."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FAILURE).write_text(json.dumps({"type": kind, "message": message, "line": line}))
