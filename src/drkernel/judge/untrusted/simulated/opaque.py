"""What a kernel may not see of its blocks: the arrays in which the interpreter holds their numbers.

numpy on such an array computes and is not counted. So the attribute of a block that leads to it exists for the code of
Triton and of this package alone, whoever asks for it and by what means. It holds nothing but what the interpreter made:
an object of a submission's in its place would be handed the arrays of other blocks. Classes that count are locked.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.runtime import interpreter as upstream

import drkernel
from drkernel.judge.untrusted.simulated.builder import BlockValue

_OURS = tuple(f"{Path(package.__file__ or '').parent}/" for package in (triton, drkernel))
_KINDS = (BlockValue, upstream.BlockPointerHandle, upstream.TensorDescHandle, type(None))
_known: dict[str, bool] = {}
"""Whether a file is one of theirs, by its name."""


class _Sealed:
    """Holds a value that no attribute shows: it is what lies in a block's `__dict__`."""

    __slots__ = ("content",)


_read, _write = _Sealed.content.__get__, _Sealed.content.__set__  # type: ignore[attr-defined]
del _Sealed.content  # type: ignore[attr-defined]


def is_ours(file: str) -> bool:
    """Whether code of this file is Triton's or this package's."""
    known = _known.get(file)
    if known is None:
        known = _known[file] = file.startswith(_OURS)
    return known


class _Handle:
    """In the place of a block's attribute `handle`."""

    def __get__(self, block: Any, owner: type) -> Any:
        if block is None or not is_ours(sys._getframe(1).f_code.co_filename):
            raise AttributeError("a block has no attribute `handle`")
        return _read(block.__dict__["handle"])

    def __set__(self, block: Any, value: Any) -> None:
        if type(value) not in _KINDS:
            raise TypeError(f"{type(value).__name__} is no value of a block")
        sealed = block.__dict__["handle"] = _Sealed()
        _write(sealed, value)


def _no_handles(block: Any, handles: list) -> None:
    raise AttributeError("a block has no attribute `_flatten_ir`")


def hide() -> None:
    """Hides what blocks and descriptors are made of; once in a process."""
    for holder in (tl.tensor, tl.core.tensor_descriptor_base, tl.core.tensor_descriptor):
        if "_flatten_ir" in vars(holder):
            holder._flatten_ir = _no_handles
    tl.tensor.handle = tl.core.tensor_descriptor_base.handle = _Handle()


_FLAGS_AT, _IMMUTABLE = 168, 1 << 8
"""Of a class in CPython: where its flags lie, and the flag of those that are written in C."""


def classes_of_triton() -> list[type]:
    """The classes that Triton's modules define."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "triton"]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return [kind for kind in found if kind.__module__.partition(".")[0] == "triton"]


def lock(*classes: type) -> None:
    """Makes attributes of classes final, as those of `int` are: neither a parameter nor a loop can change them."""
    for kind in classes:
        flags = ctypes.c_ulong.from_address(id(kind) + _FLAGS_AT)
        if flags.value != kind.__flags__:
            raise RuntimeError(f"this Python keeps the flags of {kind.__name__} elsewhere")
        flags.value |= _IMMUTABLE
