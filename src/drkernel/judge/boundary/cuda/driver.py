"""The few calls of the CUDA driver that PyTorch does not offer: shared device memory, waits for a value, own streams.

They go through ctypes, on the primary context that PyTorch uses. An error is a DrKernelError with the driver's name for
it, or torch.OutOfMemoryError where there is no memory left.
"""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from drkernel.types import DrKernelError

_LAZY_PEER_ACCESS, _GEQ, _HANDLE_BYTES, _OUT_OF_MEMORY, _NON_BLOCKING = 1, 0, 64, 2, 1
_PORTABLE_AND_MAPPED, _NO_TIMING = 3, 2
_PAGE = 2**21


class _IpcHandle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = [("bytes", ctypes.c_char * _HANDLE_BYTES)]


class _Raw:
    """Memory at an address, in the form that torch.as_tensor takes without a copy."""

    def __init__(self, address: int, nbytes: int):
        interface = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}
        self.__cuda_array_interface__ = interface


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DrKernelError(f"judge: device 'cuda' needs an NVIDIA driver: {error}") from error


def _call(name: str, *arguments: object) -> None:
    status = getattr(_library(), name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        _library().cuGetErrorName(status, ctypes.byref(text))
        kind = torch.OutOfMemoryError if status == _OUT_OF_MEMORY else DrKernelError
        raise kind(f"judge: {name}: {(text.value or b'?').decode()} ({status})")


def allocate(nbytes: int) -> int:
    """The address of an allocation of its own: nothing else becomes readable when it is shared.

    It is whole pages of 2 MiB. Of another size, another process may get it in small pages: a kernel that goes down the
    columns of 786 MB then took 4.0 ms on an H200 instead of 0.4.
    """
    address = ctypes.c_uint64()
    _call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(-(-nbytes // _PAGE) * _PAGE))
    return address.value


def free(address: int) -> None:
    """Gives back what `allocate` made."""
    _call("cuMemFree_v2", ctypes.c_uint64(address))


def ipc_handle(address: int) -> bytes:
    """A handle by which another process can open the allocation."""
    handle = _IpcHandle()
    _call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address))
    return ctypes.string_at(ctypes.byref(handle), _HANDLE_BYTES)


def open_ipc_handle(handle: bytes) -> int:
    """The address, in this process, of an allocation of another one."""
    given, address = _IpcHandle(), ctypes.c_uint64()
    ctypes.memmove(ctypes.byref(given), handle, _HANDLE_BYTES)
    _call("cuIpcOpenMemHandle_v2", ctypes.byref(address), given, _LAZY_PEER_ACCESS)
    return address.value


def close_ipc_handle(address: int) -> None:
    """Unmaps what `open_ipc_handle` has mapped at this address."""
    _call("cuIpcCloseMemHandle", ctypes.c_uint64(address))


def register_host(address: int, nbytes: int) -> int:
    """The device's address of host memory, which streams can wait for and write from now on."""
    mapped = ctypes.c_uint64()
    _call("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(nbytes), _PORTABLE_AND_MAPPED)
    _call("cuMemHostGetDevicePointer_v2", ctypes.byref(mapped), ctypes.c_void_p(address), 0)
    return mapped.value


def join_streams() -> None:
    """Makes the current stream wait for all that any stream of this process was given before."""
    context, event = _context_and_event()
    _call("cuCtxRecordEvent", context, event)
    _call("cuStreamWaitEvent", _stream(), event, 0)


@functools.cache
def _context_and_event() -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
    context, event = ctypes.c_void_p(), ctypes.c_void_p()
    _call("cuCtxGetCurrent", ctypes.byref(context))
    _call("cuEventCreate", ctypes.byref(event), _NO_TIMING)
    return context, event


def tensor(address: int, nbytes: int) -> Tensor:
    """uint8 [nbytes] on memory at an address; the caller keeps the memory alive."""
    return torch.as_tensor(_Raw(address, nbytes), device="cuda")


def wait_for(address: int, value: int) -> None:
    """Makes the current stream wait until the 32-bit value at an address is at least this. Nothing spins meanwhile."""
    _call("cuStreamWaitValue32_v2", _stream(), ctypes.c_uint64(address), ctypes.c_uint32(value), _GEQ)


def write_value(address: int, value: int) -> None:
    """Makes the current stream write a 32-bit value."""
    _call("cuStreamWriteValue32_v2", _stream(), ctypes.c_uint64(address), ctypes.c_uint32(value), 0)


def fill(address: int, byte: int, nbytes: int) -> None:
    """Makes the current stream fill memory with one byte."""
    _call("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(nbytes), _stream())


def stream() -> torch.cuda.ExternalStream:
    """A stream that is in none of PyTorch's pools, so that nobody else has it. It lives as long as the process."""
    handle = ctypes.c_void_p()
    _call("cuStreamCreate", ctypes.byref(handle), _NON_BLOCKING)
    return torch.cuda.ExternalStream(handle.value)


def _stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
