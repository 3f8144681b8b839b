"""The description of a Triton kernel specialised for a launch, as a message between processes.

A runner describes each kernel that it needs and that was not compiled ahead. The examiner hands the descriptions on,
and a tracer compiles from them. A description has no code: it names a function of the submission, or one of Triton's.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any

import msgspec
import torch
import triton.language as tl
from msgspec import Meta, Struct
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from drkernel.judge.boundary.parsing import parse
from drkernel.judge.boundary.shared_tensors import DTYPES, NotSerializable

MAX_ARGUMENTS = 512
_TYPE = re.compile(r"constexpr|nvTmaDesc|\*?[a-z][a-z0-9]{0,15}|tensordesc<[a-z0-9]{1,12}\[[0-9]+(, ?[0-9]+){0,4}\]>")
"""The name of an argument's type, such as *fp32 or i64. No pattern of msgspec: in a union with an array, one corrupts
memory (msgspec 0.22)."""
_Types1 = Annotated[tuple[str, ...], Meta(max_length=MAX_ARGUMENTS)]
_Types2 = Annotated[tuple[str | _Types1, ...], Meta(max_length=MAX_ARGUMENTS)]
_Types3 = Annotated[tuple[str | _Types2, ...], Meta(max_length=MAX_ARGUMENTS)]
_Types4 = Annotated[tuple[str | _Types3, ...], Meta(max_length=MAX_ARGUMENTS)]
Types = Annotated[tuple[str | _Types4, ...], Meta(max_length=MAX_ARGUMENTS)]
"""The types of arguments. A tuple among the arguments has a tuple of types, and four may be nested. A struct that has
them calls `check_types`."""

MAX_DEPTH = 8
_TRITON_DTYPES = {str(dtype): dtype for dtype in vars(tl).values() if isinstance(dtype, tl.dtype)}


class Float(Struct, frozen=True, tag="float"):
    """A float as float.hex writes it, so that no digit is lost."""

    hex: Annotated[str, Meta(max_length=40)]

    def load(self, module: str) -> float:
        return float.fromhex(self.hex)


class List(Struct, frozen=True, tag="list"):
    items: list[Value]

    def load(self, module: str) -> list:
        return [_load(item, module) for item in self.items]


class Tuple(Struct, frozen=True, tag="tuple"):
    items: list[Value]

    def load(self, module: str) -> tuple:
        return tuple(_load(item, module) for item in self.items)


class Dict(Struct, frozen=True, tag="dict"):
    items: list[tuple[Value, Value]]

    def load(self, module: str) -> dict:
        return {_load(key, module): _load(value, module) for key, value in self.items}


class TritonDtype(Struct, frozen=True, tag="triton_dtype"):
    name: str

    def load(self, module: str) -> tl.dtype:
        return _TRITON_DTYPES[self.name]


class TorchDtype(Struct, frozen=True, tag="torch_dtype"):
    name: str

    def load(self, module: str) -> torch.dtype:
        return DTYPES[self.name]


class Constexpr(Struct, frozen=True, tag="constexpr"):
    value: Value

    def load(self, module: str) -> tl.constexpr:
        return tl.constexpr(_load(self.value, module))


class Function(Struct, frozen=True, tag="function"):
    """A function under @triton.jit: its global name in its module, or "triton.<module>:<name>" for one of Triton's."""

    name: str

    def load(self, module: str) -> Any:
        return _function(self.name, module)


Value = bool | int | str | Float | List | Tuple | Dict | TritonDtype | TorchDtype | Constexpr | Function | None
"""A compile-time value."""
Path = list[int]
"""Indices that lead to an argument: one, and a further one for each tuple that it lies in."""


class KernelDescription(Struct, frozen=True, forbid_unknown_fields=True):
    """One specialisation of a kernel: what triton.compile is given, without the code."""

    kernel: str
    """As Function.name."""
    signature: dict[str, str | _Types4]
    constants: list[tuple[Path, Value]]
    attrs: list[tuple[Path, Value]]
    options: dict[str, Value]

    def __post_init__(self) -> None:
        check_types(tuple(self.signature.values()))


def check_types(types: tuple) -> None:
    """Raises ValueError unless all are names of types, or tuples of such."""
    for kind in types:
        if isinstance(kind, tuple):
            check_types(kind)
        elif not _TYPE.fullmatch(kind):
            raise ValueError(f"{kind[:80]!r} is no type of an argument")


def describe(src: ASTSource, options: dict[str, Any] | None) -> dict[str, Any]:
    """A KernelDescription in JSON's types. One that cannot be handed over has its name and the problem alone."""
    try:
        described = KernelDescription(
            _global_name(src.fn),
            src.signature,
            [(list(path), _dump(value)) for path, value in src.constants.items()],
            [(list(path), _dump(value)) for path, value in src.attrs.items()],
            {name: _dump(value) for name, value in (options or {}).items()},
        )
        return json.loads(msgspec.json.encode(described))
    except (NotSerializable, ValueError) as error:
        return {"kernel": src.name, "problem": str(error)}


def load(description: Any, module: str) -> tuple[ASTSource, dict[str, Any]]:
    """The described kernel, in the submission that was executed as this module, and its options.

    Raises:
        ProtocolViolation: it is no KernelDescription.
        NotSerializable: it names no kernel of this module, or no value.
    """
    described = parse(description, KernelDescription)
    try:
        fn = _function(described.kernel, module)
        constants = {tuple(path): _load(value, module) for path, value in described.constants}
        attrs = {tuple(path): _load(value, module) for path, value in described.attrs}
        options = {name: _load(value, module) for name, value in described.options.items()}
        return ASTSource(fn, described.signature, constants, attrs), options
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotSerializable(f"the description of a kernel is wrong: {error!r}") from error


def _dump(value: Any, depth: int = 0) -> Value:
    kind = type(value)
    if depth > MAX_DEPTH:
        raise NotSerializable("a constant that is nested too deeply")
    if value is None or kind in (bool, str) or (kind is int and -(2**63) <= value < 2**64):
        return value
    if kind is float:
        return Float(value.hex())
    if kind in (tuple, list):
        items = [_dump(item, depth + 1) for item in value]
        return Tuple(items) if kind is tuple else List(items)
    if kind is dict:
        return Dict([(_dump(key, depth + 1), _dump(item, depth + 1)) for key, item in value.items()])
    if isinstance(value, tl.dtype) and str(value) in _TRITON_DTYPES:
        return TritonDtype(str(value))
    if isinstance(value, torch.dtype):
        return TorchDtype(str(value).removeprefix("torch."))
    if isinstance(value, tl.constexpr):
        return Constexpr(_dump(value.value, depth + 1))
    if hasattr(value, "cache_key") and hasattr(value, "__globals__"):
        return Function(_global_name(value))
    raise NotSerializable(f"a constant of type {kind.__name__}")


def _load(value: Value, module: str) -> Any:
    return value.load(module) if isinstance(value, Struct) else value


def _global_name(fn: Any) -> str:
    if fn.__module__.startswith("triton."):
        return f"{fn.__module__}:{fn.__name__}"
    for name, value in fn.__globals__.items():
        if jit_function_of(value) is fn:
            return name
    raise NotSerializable(f"the jit function {fn.__name__} has no global name")


def _function(place: str, module: str) -> Any:
    home, _, name = place.rpartition(":")
    if home and not home.startswith("triton."):
        raise NotSerializable(f"a jit function of {home}")
    found = jit_function_of(getattr(sys.modules[home or module], name))
    if not hasattr(found, "cache_key"):
        raise NotSerializable(f"{place} is no jit function")
    return found


def jit_function_of(value: Any) -> Any | JITFunction:
    """The function within an autotuner and heuristics; any other value as it is."""
    while isinstance(value, (Autotuner, Heuristics)):
        value = value.fn
    return value
