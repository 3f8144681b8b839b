"""Tensors in shared memory and the structures around them in JSON: how values pass between examiner and runner.

Both processes run this module. A value is None, a bool, a number, a string, a dtype, a tensor, or a list, tuple or
string-keyed dict of values; to a submission also an object of such attributes (`records`). Its JSON form names tensors
by their index in a list of `Slot`s. A slot says where the bytes of one tensor lie in an `Area`, a piece of memory that
two processes share.
"""

from __future__ import annotations

import abc
import fcntl
import itertools
import math
import mmap
import os
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
import torch
from torch import Tensor

from drkernel.judge.boundary import records
from drkernel.judge.boundary.records import MAX_DEPTH

GUARD = 256
"""Bytes of 0xFF (NaN in every floating type) before and after each tensor in an area."""
MAX_NODES, MAX_DIMS = 4096, 16
MISFITS = (msgspec.ValidationError, RecursionError, UnicodeError)
"""What msgspec.convert raises for data that do not fit; the last for half a surrogate pair where it expects a word."""
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_JSON_NAMES = {
    "items": "list", "fields": "tuple", "pairs": "dict", "attributes": "object", "named": "namedtuple",
    "hexadecimal": "float", "digits": "int",
}  # fmt: skip
"""What the fields of `Node` are called in JSON: the names of Python's types."""
_ADD_SEALS, _NEVER_RESIZED = 1033, 0x1 | 0x2 | 0x4  # F_ADD_SEALS; F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW


_detach, _fields, _keys, _pairs = torch._C.TensorBase.detach, tuple.__iter__, dict.keys, dict.items
"""How `encode` reads values: by methods of the built-in classes, bound before a submission is loaded. An attribute or a
subclass may name others, which compute when they are called."""

Size = Annotated[int, msgspec.Meta(ge=0)]
Sizes = Annotated[tuple[Size, ...], msgspec.Meta(max_length=MAX_DIMS)]


class NotSerializable(Exception):
    """A value that cannot be passed on: of an unknown type, too deep, too large, or not well formed."""


class Slot(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a tensor lies in an area. As JSON it is the list of these fields."""

    offset: Size
    dtype: str
    shape: Sizes
    stride: Sizes

    @property
    def extent(self) -> int:
        """Elements from the first to the last that the tensor touches."""
        return 0 if 0 in self.shape else 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))

    @property
    def nbytes(self) -> int:
        return self.extent * DTYPES[self.dtype].itemsize

    @property
    def copied_bytes(self) -> int:
        """Of a copy, in which elements that lie in one place are separate."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def to_json(self) -> list:
        return [self.offset, self.dtype, list(self.shape), list(self.stride)]

    @classmethod
    def parse(cls, data: Any, size: int) -> Slot:
        """The slot that decoded JSON from an untrusted process describes.

        Args:
            size: of the area, in bytes.

        Raises:
            NotSerializable: it is not well formed, or reaches out of the area.
        """
        try:
            slot = msgspec.convert(data, cls, strict=True)
        except MISFITS as error:
            raise NotSerializable(f"a tensor described wrongly: {error}") from error
        slot.check(size)
        return slot

    def check(self, size: int) -> None:
        """Raises NotSerializable unless the slot lies in an area of so many bytes, aligned as its type needs it."""
        if self.dtype not in DTYPES or any(n > size for n in (self.offset, *self.shape, *self.stride)):
            raise NotSerializable("a tensor described wrongly")
        misaligned = self.offset % DTYPES[self.dtype].itemsize
        if len(self.shape) != len(self.stride) or misaligned or self.offset + self.nbytes > size:
            raise NotSerializable("a tensor outside the shared memory")


class Area(abc.ABC):
    """A piece of memory that two processes share, of fixed size, which is filled with tensors from its start."""

    align, device = 64, "cpu"
    """Bytes, of which tensors start at multiples, and where tensors are."""

    def __init__(self, size: int, start: int = 0):
        self.size, self._start, self.top = size, start, start

    @abc.abstractmethod
    def close(self) -> None:
        """Gives up this process's hold on the memory."""

    @abc.abstractmethod
    def settle(self) -> None:
        """Waits until what was put here can be read by the other process."""

    @abc.abstractmethod
    def _flat(self, dtype: str, count: int, offset: int) -> Tensor:
        """So many elements, in shared memory, from this byte on."""

    def clear(self) -> None:
        """Starts again at the same addresses; the bytes stay until they are overwritten."""
        self.top = self._start

    def put(self, tensor: Tensor, dense: bool = False) -> Slot:
        """Copies a tensor (dense: as contiguous) behind what is there, with a guard on either side."""
        slot = self.place(tensor, dense)
        if slot.extent:
            self._target(slot).copy_(tensor.detach())
        return slot

    def place(self, tensor: Tensor, dense: bool = False) -> Slot:
        """Makes room for a tensor as `put` does, without copying it."""
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
        self.top = end
        return slot

    def lay(self, value: Any) -> tuple[Any, list]:
        """Writes a value's tensors from the start of the area; its JSON form, and their slots. Raises as `encode`."""
        return self._laid(value, self.put)

    def plan(self, value: Any) -> tuple[Any, list]:
        """As `lay`, without copying the tensors."""
        return self._laid(value, self.place)

    def _laid(self, value: Any, put: Callable[[Tensor], Slot]) -> tuple[Any, list]:
        slots: list[list] = []

        def note(tensor: Tensor) -> int:
            slots.append(put(tensor).to_json())
            return len(slots) - 1

        self.clear()
        return encode(records.recorded(value), note), slots

    def _blank(self, start: int, count: int) -> None:
        self.bytes(start, count).fill_(0xFF)

    def _target(self, slot: Slot) -> Tensor:
        return self.view(slot)

    def view(self, slot: Slot) -> Tensor:
        """The tensor itself, in shared memory, with a storage of its own extent."""
        if not slot.extent:
            return torch.empty_strided(slot.shape, slot.stride, dtype=DTYPES[slot.dtype], device=self.device)
        return self._flat(slot.dtype, slot.extent, slot.offset).as_strided(slot.shape, slot.stride)

    def snapshot(self) -> Tensor:
        """A private copy of all bytes in use: uint8 [top]."""
        return self.bytes(0, self.top).clone()

    def same(self, snapshot: Tensor) -> bool:
        return torch.equal(self.bytes(0, self.top), snapshot)

    def bytes(self, start: int, count: int) -> Tensor:
        """uint8 [count], in shared memory."""
        return self._flat("uint8", count, start)


class HostArea(Area):
    """An area in host memory, which neither process can resize. It is handed on as a file descriptor, `handle`."""

    def __init__(self, handle: int, size: int):
        super().__init__(size)
        self.handle = handle
        self.memory = mmap.mmap(handle, size)

    @classmethod
    def create(cls, name: str, size: int) -> HostArea:
        handle = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(handle, size)
        fcntl.fcntl(handle, _ADD_SEALS, _NEVER_RESIZED)
        return cls(handle, size)

    def close(self) -> None:
        """Closes the descriptor; the mapping goes with the last tensor on it."""
        os.close(self.handle)

    def settle(self) -> None:
        """There is nothing to wait for."""

    def _flat(self, dtype: str, count: int, offset: int) -> Tensor:
        return torch.frombuffer(self.memory, dtype=DTYPES[dtype], count=count, offset=offset)


def encode(value: Any, put: Callable[[Tensor], int], depth: int = 0) -> Any:
    """The JSON form of a value. `put` stores a tensor and returns its index.

    Raises:
        NotSerializable: for anything that is not a value, by its exact type (subclasses of Tensor included).
            Named tuples and other subclasses of tuple and dict are read as what they derive from.
    """
    kind = type(value)
    if depth > MAX_DEPTH:
        raise NotSerializable("values nested too deeply")
    if kind in (Tensor, torch.nn.Parameter):
        return {"tensor": put(_detach(value))}
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
    if issubclass(kind, tuple):
        return {"tuple": [encode(v, put, depth + 1) for v in _fields(value)]}
    if issubclass(kind, dict) and all(type(k) is str for k in _keys(value)):
        return {"dict": [[k, encode(v, put, depth + 1)] for k, v in _pairs(value)]}
    if kind is records.Record:
        form = "namedtuple" if value.is_tuple else "object"
        return {form: [[k, encode(v, put, depth + 1)] for k, v in value.values.items()]}
    raise NotSerializable(f"a value of type {kind.__name__}")


class Node(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename=_JSON_NAMES):
    """The JSON form of a value that JSON itself does not have. Exactly one field is set, which says what it is."""

    tensor: int | msgspec.UnsetType = msgspec.UNSET
    """Its index."""
    items: list[Any] | msgspec.UnsetType = msgspec.UNSET
    """Of a list."""
    fields: list[Any] | msgspec.UnsetType = msgspec.UNSET
    """Of a tuple."""
    pairs: list[tuple[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    """Of a dict: key, value."""
    attributes: list[tuple[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    """Of an object: name, value."""
    named: list[tuple[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    """Of a named tuple: the same."""
    hexadecimal: Annotated[str, msgspec.Meta(max_length=39)] | msgspec.UnsetType = msgspec.UNSET
    """Of a float."""
    digits: Annotated[str, msgspec.Meta(max_length=399, pattern="^-?[0-9]+$")] | msgspec.UnsetType = msgspec.UNSET
    """Of an integer of more than 64 bits."""
    dtype: str | msgspec.UnsetType = msgspec.UNSET


def decode(data: Any, get: Callable[[int], Any], with_objects: bool = False) -> Any:
    """The value that a JSON form stands for.

    Args:
        data: decoded JSON, which may come from an untrusted process.
        get: returns the tensor with an index, and refuses a bad index.
        with_objects: it may have objects and named tuples, since it comes from the trusted side.

    Raises:
        NotSerializable: it is not well formed, too large or nested too deeply.
    """
    return _decoded(data, get, with_objects, itertools.count(1), 0)


def _decoded(data: Any, get: Callable[[int], Any], objects: bool, nodes: Iterator[int], depth: int) -> Any:
    """No inner function of `decode`: one that calls itself would keep the tensors until garbage is collected."""
    if next(nodes) > MAX_NODES or depth > MAX_DEPTH:
        raise NotSerializable("a structure of values that is too large")
    if data is None or type(data) in (bool, int, str):
        return data
    try:
        node = msgspec.convert(data, Node, strict=True)
    except MISFITS as error:
        raise NotSerializable(f"a value described wrongly: {error}") from error
    if len(data) != 1:
        raise NotSerializable("a value described wrongly: exactly one kind is expected")
    if node.tensor is not msgspec.UNSET:
        return get(node.tensor)
    if node.items is not msgspec.UNSET:
        return [_decoded(value, get, objects, nodes, depth + 1) for value in node.items]
    if node.fields is not msgspec.UNSET:
        return tuple([_decoded(value, get, objects, nodes, depth + 1) for value in node.fields])
    if node.pairs is not msgspec.UNSET:
        return {key: _decoded(value, get, objects, nodes, depth + 1) for key, value in node.pairs}
    parts = node.named if node.attributes is msgspec.UNSET else node.attributes
    if objects and parts is not msgspec.UNSET:
        values = {name: _decoded(value, get, objects, nodes, depth + 1) for name, value in parts}
        return records.made(values, parts is node.named)
    if node.hexadecimal is not msgspec.UNSET:
        return _float(node.hexadecimal)
    if node.digits is not msgspec.UNSET:
        return int(node.digits)
    if node.dtype is not msgspec.UNSET and node.dtype in DTYPES:
        return DTYPES[node.dtype]
    raise NotSerializable("a value described wrongly: there is no such type")


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


def repeats(tensor: Tensor) -> bool:
    """Whether elements may lie at one place, as `expand` makes them, and windows that overlap."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)) if tensor.numel() else ():
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def checksum(tensor: Tensor) -> int:
    """A number that nearly always changes when a value of the tensor does."""
    bits = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return int(bits.view(_INTEGERS[bits.element_size()]).sum(dtype=torch.int64))
