"""Tensors in shared memory and the structures around them in JSON: how values cross the border between processes.

A value is None, a bool, a number, a string, a dtype, a tensor, or a list, tuple or string-keyed dict of values. Its
JSON form names tensors by their index in a list of `Slot`s, which say where each one's bytes lie in an `Area`.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

GUARD = 256
"""Bytes of 0xFF (NaN in every floating type) before and after each tensor in an area."""
MAX_NODES, MAX_DEPTH, MAX_DIMS = 4096, 16, 16
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_ADD_SEALS, _NEVER_RESIZED = 1033, 0x1 | 0x2 | 0x4  # F_ADD_SEALS; F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW


class NotSerializable(Exception):
    """A value that cannot cross: of an unknown type, too deep, too large, or described wrongly."""


@dataclass(frozen=True)
class Slot:
    """Where a tensor lies in an area."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Elements from the first to the last that the tensor touches."""
        return 0 if 0 in self.shape else 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))

    @property
    def nbytes(self) -> int:
        return self.extent * DTYPES[self.dtype].itemsize

    def to_json(self) -> list:
        return [self.offset, self.dtype, list(self.shape), list(self.stride)]

    @classmethod
    def parse(cls, data: Any, size: int) -> Slot:
        """Strict: the description may come from an untrusted process. `size` is the area's, in bytes."""
        if not (isinstance(data, list) and len(data) == 4 and isinstance(data[1], str) and data[1] in DTYPES):
            raise NotSerializable("a tensor described wrongly")
        offset, dtype, shape, stride = data
        for numbers in (shape, stride, [offset]):
            if not isinstance(numbers, list) or len(numbers) > MAX_DIMS:
                raise NotSerializable("a tensor described wrongly")
            if not all(type(n) is int and 0 <= n <= size for n in numbers):
                raise NotSerializable("a tensor described wrongly")
        slot = cls(offset, dtype, tuple(shape), tuple(stride))
        if len(shape) != len(stride) or offset + slot.nbytes > size or offset % DTYPES[dtype].itemsize:
            raise NotSerializable("a tensor outside the shared memory")
        return slot


class Area:
    """A piece of memory that two processes share: neither can resize it."""

    align, device = 64, "cpu"
    """Bytes, of which tensors start at multiples, and where tensors are."""

    def __init__(self, handle: int, size: int):
        self.handle, self.size = handle, size
        self._map = mmap.mmap(handle, size)
        self.top = 0

    @classmethod
    def create(cls, name: str, size: int) -> Area:
        handle = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(handle, size)
        fcntl.fcntl(handle, _ADD_SEALS, _NEVER_RESIZED)
        return cls(handle, size)

    def clear(self) -> None:
        """Starts again at the same addresses; the bytes stay until they are overwritten."""
        self.top = 0

    def put(self, tensor: Tensor, dense: bool = False) -> Slot:
        """Copies a tensor (dense: as contiguous) behind what is there, with a guard on either side."""
        shape = tuple(tensor.shape)
        dense = dense or any(step == 0 and size > 1 for size, step in zip(shape, tensor.stride(), strict=True))
        stride = _dense_stride(shape) if dense else tensor.stride()
        start = -(-(self.top + GUARD) // self.align) * self.align
        slot = Slot(start, str(tensor.dtype).removeprefix("torch."), shape, tuple(stride))
        end = start + slot.nbytes + GUARD
        if end > self.size:
            raise NotSerializable(
                f"{end / 2**20:.0f} MiB of tensors, at most {self.size / 2**20:.0f} MiB can be handed over"
            )
        if slot.extent == tensor.numel():
            self._blank(self.top, start - self.top)
            self._blank(end - GUARD, GUARD)
        else:
            self._blank(self.top, end - self.top)
        if slot.extent:
            self._target(slot).copy_(tensor.detach())
        self.top = end
        return slot

    def lay(self, value: Any) -> tuple[Any, list]:
        """Writes a value's tensors from the start of the area; its JSON form, and their places. Raises as `encode`."""
        slots: list[list] = []

        def put(tensor: Tensor) -> int:
            slots.append(self.put(tensor).to_json())
            return len(slots) - 1

        self.clear()
        return encode(value, put), slots

    def _blank(self, start: int, count: int) -> None:
        self.bytes(start, count).fill_(0xFF)

    def _target(self, slot: Slot) -> Tensor:
        return self.view(slot)

    def view(self, slot: Slot) -> Tensor:
        """The tensor itself, in shared memory, with a storage of its own extent."""
        if not slot.extent:
            return torch.empty_strided(slot.shape, slot.stride, dtype=DTYPES[slot.dtype], device=self.device)
        return self._flat(slot.dtype, slot.extent, slot.offset).as_strided(slot.shape, slot.stride)

    def settle(self) -> None:
        """Waits until what was put here can be read by the other process."""

    def snapshot(self) -> Tensor:
        """A private copy of all bytes in use: uint8 [top]."""
        return self.bytes(0, self.top).clone()

    def same(self, snapshot: Tensor) -> bool:
        return torch.equal(self.bytes(0, self.top), snapshot)

    def close(self) -> None:
        """Gives up the handle; the mapping goes with the last tensor on it."""
        os.close(self.handle)

    def bytes(self, start: int, count: int) -> Tensor:
        """uint8 [count], in shared memory."""
        return self._flat("uint8", count, start)

    def _flat(self, dtype: str, count: int, offset: int) -> Tensor:
        return torch.frombuffer(self._map, dtype=DTYPES[dtype], count=count, offset=offset)


def encode(value: Any, put: Callable[[Tensor], int], depth: int = 0) -> Any:
    """The JSON form of a value. `put` stores a tensor and returns its index.

    Raises:
        NotSerializable: for anything that is not a value, by its exact type (subclasses of Tensor included).
    """
    kind = type(value)
    if depth > MAX_DEPTH:
        raise NotSerializable("values nested too deeply")
    if kind in (Tensor, torch.nn.Parameter):
        return {"tensor": put(value)}
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if abs(value) < 2**63 else {"int": str(value)}
    if kind is float:
        return {"float": value.hex()}
    if kind is torch.dtype:
        return {"dtype": str(value).removeprefix("torch.")}
    if kind in (list, torch.Size):
        return {"list": [encode(v, put, depth + 1) for v in value]}
    if isinstance(value, tuple):
        return {"tuple": [encode(v, put, depth + 1) for v in value]}
    if isinstance(value, dict) and all(type(k) is str for k in value):
        return {"dict": [[k, encode(v, put, depth + 1)] for k, v in value.items()]}
    raise NotSerializable(f"a value of type {kind.__name__}")


def decode(data: Any, get: Callable[[int], Any]) -> Any:
    """The value behind a JSON form; strict. `get` returns the tensor with an index (and refuses a bad index)."""
    return _decoded(data, get, itertools.count(1), 0)


def _decoded(data: Any, get: Callable[[int], Any], nodes: Iterator[int], depth: int) -> Any:
    """No inner function of `decode`: one that calls itself would keep the tensors until garbage is collected."""
    if next(nodes) > MAX_NODES or depth > MAX_DEPTH:
        raise NotSerializable("a structure of values that is too large")
    if data is None or type(data) in (bool, int, str):
        return data
    if not isinstance(data, dict) or len(data) != 1:
        raise NotSerializable("a value described wrongly")
    ((kind, body),) = data.items()
    if kind == "tensor" and type(body) is int:
        return get(body)
    if kind in ("list", "tuple") and isinstance(body, list):
        return (list if kind == "list" else tuple)(_decoded(v, get, nodes, depth + 1) for v in body)
    if kind == "dict" and isinstance(body, list) and all(isinstance(p, list) and len(p) == 2 for p in body):
        return {str(key): _decoded(v, get, nodes, depth + 1) for key, v in body}
    if kind == "float" and isinstance(body, str) and len(body) < 40:
        return _float(body)
    if kind == "int" and isinstance(body, str) and len(body) < 400 and body.lstrip("-").isdecimal():
        return int(body)
    if kind == "dtype" and isinstance(body, str) and body in DTYPES:
        return DTYPES[body]
    raise NotSerializable("a value described wrongly")


def _float(text: str) -> float:
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError) as error:
        raise NotSerializable("a number described wrongly") from error


def _dense_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.append(steps[-1] * max(size, 1))
    return tuple(reversed(steps))[: len(shape)] if shape else ()


def overlaps(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors' storages share bytes."""
    a, b = first.untyped_storage(), second.untyped_storage()
    return a.data_ptr() < b.data_ptr() + b.nbytes() and b.data_ptr() < a.data_ptr() + a.nbytes()
