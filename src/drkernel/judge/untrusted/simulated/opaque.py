"""What a kernel may not see of its blocks: the arrays in which the interpreter holds their numbers.

numpy on such an array computes and is not counted. So the attribute of a block that leads to it exists for the code of
Triton and of this package alone, whoever asks for it and by what means. It holds nothing but what the interpreter made:
an object of a submission's in its place would be handed the arrays of other blocks.
"""

from __future__ import annotations

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


class _Handle:
    """In the place of a block's attribute `handle`."""

    def __get__(self, block: Any, owner: type) -> Any:
        file = sys._getframe(1).f_code.co_filename
        known = _known.get(file)
        if known is None:
            known = _known[file] = file.startswith(_OURS)
        if block is None or not known:
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
