"""What a submission launches at the published sizes, and how often: its model runs on tensors without data.

Runs in simulated runners. Kernels are not executed but for a few programs (`sampled`). A number that is read back is 1,
and of elements that data choose there is one: few grids depend on it. Of truth values the first ones are true, so that
loops end (`nn.init.trunc_normal_` draws until no number is outside).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor

from drkernel.judge.boundary.construction import in_mode
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.boundary.shared_tensors import DTYPES, decode
from drkernel.judge.untrusted.fake_cuda import CUDA
from drkernel.judge.untrusted.simulated import own_errors
from drkernel.judge.untrusted.simulated.autotuning import choosing
from drkernel.judge.untrusted.simulated.cpu_as_cuda import ADDRESSES
from drkernel.judge.untrusted.simulated.device import copied_to_host, record_grids
from drkernel.judge.untrusted.simulated.limits import Guesses
from drkernel.judge.untrusted.simulated.sampled import CERTAIN

MOST_FORWARDS = 5
"""The first ones may pack weights, keep buffers and capture a graph. Two in a row that call the same are enough."""

MOST_LISTED = 2**20
"""Numbers that are read back at once."""

MOST_TRUE = 64
"""Truth values that are read back as true, by a constructor or by a forward."""

_APART = 2**36
"""Bytes between storages: 2**32 elements of 16 bytes."""

_CHOOSING: dict[Any, Callable[..., tuple[tuple[int, ...], torch.dtype]]] = {
    torch.ops.aten.nonzero.default: lambda x: ((1, x.dim()), torch.int64),
    torch.ops.aten.masked_select.default: lambda x, mask: ((1,), x.dtype),
    torch.ops.aten.bincount.default: lambda x, weights=None, minlength=0: (
        (max(1, minlength),),
        torch.int64 if weights is None else weights.dtype,
    ),
    torch.ops.aten.repeat_interleave.Tensor: lambda repeats, output_size=None: ((1,), repeats.dtype),
}
"""Operators whose result has as many elements as data say -> its shape and dtype where that is one."""


def launched(build: Callable[..., nn.Module], init: Any, args: Any, metas: list, train: bool, seed: int = 0) -> OpTrace:
    """The launches of the last forward, with the numbers of their programs, and its calls of ATen.

    Args:
        init, args: the arguments of the constructor and of forward, in the form of shared_tensors.
        metas: [dtype, shape, stride] of each tensor in them.
        seed: see `record_grids`.

    Raises:
        LaunchLimitExceeded, MemoryFault: no GPU would run it.
        Unfinished: it did not run to its end, perhaps since tensors have no data. Any other error is the submission's
            own.
    """
    with _without_data(), torch.no_grad():
        try:
            return _traced(build, init, args, metas, train, seed)
        except CERTAIN:
            raise
        except BaseException as error:
            own_errors.expect_own(error)
            raise


def _traced(build: Callable[..., nn.Module], init: Any, args: Any, metas: list, train: bool, seed: int) -> OpTrace:
    tensors = [torch.empty_strided(shape, stride, dtype=DTYPES[kind]) for kind, shape, stride in metas]
    positional, keywords = decode(init, tensors.__getitem__, with_objects=True)
    Guesses.true = 0
    model = in_mode(build(*positional, **keywords), train)
    called: list[tuple[str, int]] = []
    for _ in range(MOST_FORWARDS):
        before, Guesses.true = called, 0
        with record_grids(seed) as trace, choosing(0, tries=False):
            model(*decode(args, tensors.__getitem__, with_objects=True))
        called = [(row.site, row.calls) for row in trace.rows]
        if called == before:
            break
    return trace


@contextlib.contextmanager
def _without_data() -> Iterator[None]:
    """Whatever creates tensors in this block creates such ones. They pass for CUDA tensors, and have an address."""
    device = fake_tensor.FakeTensor.device
    assert isinstance(device, property)
    patches = [
        (fake_tensor.log, "disabled", True),  # it would say at length what does not run
        (fake_tensor.FakeTensor, "data_ptr", _Addresses()),
        (fake_tensor.FakeTensor, "device", property(lambda tensor: _device(tensor, device))),
        (torch.utils, "swap_tensors", _becomes),
        (fake_tensor.FakeTensor, "item_memo", property(_guess, lambda tensor, value: None)),
        (fake_tensor.FakeTensor, "tolist", _listed(fake_tensor.FakeTensor.tolist)),
        (Guesses, "made", False),
        (Guesses, "lacked", False),
    ]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        yield stack.enter_context(_FakeMode(allow_non_fake_inputs=True))


class _FakeMode(fake_tensor.FakeTensorMode):
    """Of which operators that choose elements by data choose one."""

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return super().dispatch(func, types, args, kwargs or {})
        except own_errors.LACKING:
            if func not in _CHOOSING:
                Guesses.lacked = True
                raise
            Guesses.made = True
            shape, dtype = _CHOOSING[func](*args, **(kwargs or {}))
            with self:
                return torch.empty(shape, dtype=dtype)


def _device(tensor: Tensor, own: property) -> torch.device:
    """That of fake CUDA for the submission. Torch sets the mode aside where it asks for itself."""
    return CUDA if torch._C._len_torch_function_stack() else own.fget(tensor)  # type: ignore[misc]


def _guess(tensor: Tensor) -> int:
    """The number that is read back."""
    Guesses.made = True
    Guesses.true += tensor.dtype == torch.bool
    return int(tensor.dtype != torch.bool or Guesses.true <= MOST_TRUE)


def _listed(one_by_one: Callable) -> Callable:
    """In the place of a method that reads numbers back one by one: all of them are one copy, as with data."""

    def tolist(tensor: Tensor) -> Any:
        if tensor.numel() > MOST_LISTED:
            return one_by_one(tensor)
        Guesses.made = True
        copied_to_host(tensor)
        return np.ones(tuple(tensor.shape), np.int64).tolist()

    return tolist


class _Addresses:
    """Where tensors would lie, as fake CUDA has it: each storage at a multiple of 512 bytes. It is far from others, so
    that an offset which has gone wrong leads to none of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], int] = {}
        self._next = ADDRESSES

    def __get__(self, tensor: Tensor, kind: type) -> Callable[[], int]:
        return lambda: self._of(tensor)

    def _of(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known[key] = self._next
            self._next += _APART + storage.nbytes() // 512 * 512
        return self._known[key] + int(tensor.storage_offset()) * tensor.element_size()


def _becomes(tensor: Tensor, other: Tensor) -> None:
    """For modules that convert themselves: a tensor that others refer to cannot be swapped."""
    tensor.data = other
