"""What a submission launches at the published sizes, and how often: its model runs on tensors without data.

Runs in simulated runners. Kernels are not executed but for a few programs (`sampled`). What data decide is guessed
(`guesses`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from drkernel.judge.boundary.construction import in_mode
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.boundary.shared_tensors import DTYPES, decode
from drkernel.judge.untrusted.fake_cuda import CUDA
from drkernel.judge.untrusted.simulated import guesses, own_errors
from drkernel.judge.untrusted.simulated.autotuning import choosing
from drkernel.judge.untrusted.simulated.cpu_as_cuda import ADDRESSES
from drkernel.judge.untrusted.simulated.device import copied_to_host, record_grids
from drkernel.judge.untrusted.simulated.guesses import Guesses
from drkernel.judge.untrusted.simulated.own_errors import Unfinished
from drkernel.judge.untrusted.simulated.sampled import CERTAIN

MOST_FORWARDS = 5
"""The first ones may pack weights, keep buffers and capture a graph. Two in a row that call the same are enough."""

_APART = 2**36
"""Bytes between storages: 2**32 elements of 16 bytes."""


def launched(
    build: Callable[..., nn.Module],
    init: Any,
    args: Any,
    metas: list,
    train: bool,
    seed: int = 0,
    answers: Sequence[bool] = (),
) -> OpTrace:
    """The launches of the last forward, with the numbers of their programs, and its calls of ATen.

    Args:
        init, args: the arguments of the constructor and of forward, in the form of shared_tensors.
        metas: [dtype, shape, stride] of each tensor in them.
        seed: see `record_grids`.
        answers: see Guesses.

    Raises:
        LaunchLimitExceeded, MemoryFault: no GPU would run it.
        Unfinished: it did not run to its end, perhaps since tensors have no data. Any other error is the submission's
            own.
    """
    with _without_data(answers), torch.no_grad():
        try:
            trace = _traced(build, init, args, metas, train, seed)
            if Guesses.lacked:
                raise Unfinished(RuntimeError("an operator needs data, and its error was caught"), False)
        except (*CERTAIN, Unfinished):
            raise
        except BaseException as error:
            own_errors.expect_own(error)
            raise
        trace.read = Guesses.read()
    return trace


def _traced(build: Callable[..., nn.Module], init: Any, args: Any, metas: list, train: bool, seed: int) -> OpTrace:
    tensors = [torch.empty_strided(shape, stride, dtype=DTYPES[kind]) for kind, shape, stride in metas]
    positional, keywords = decode(init, tensors.__getitem__, with_objects=True)
    Guesses.asked = 0
    model = in_mode(build(*positional, **keywords), train)
    called: list[tuple[str, int]] = []
    for _ in range(MOST_FORWARDS):
        before, Guesses.asked = called, 0
        with record_grids(seed) as trace, choosing(0, tries=False):
            model(*decode(args, tensors.__getitem__, with_objects=True))
        called = [(row.site, row.calls) for row in trace.rows]
        if called == before:
            break
    return trace


@contextlib.contextmanager
def _without_data(answers: Sequence[bool]) -> Iterator[None]:
    """Whatever creates tensors in this block creates such ones. They pass for CUDA tensors, and have an address."""
    device = fake_tensor.FakeTensor.device
    assert isinstance(device, property)
    patches = [
        (fake_tensor.log, "disabled", True),  # it would say at length what does not run
        (fake_tensor.FakeTensor, "data_ptr", _Addresses()),
        (fake_tensor.FakeTensor, "device", property(lambda tensor: _device(tensor, device))),
        (torch.utils, "swap_tensors", _becomes),
        (fake_tensor.FakeTensor, "item_memo", property(guesses.item, lambda tensor, value: None)),
        (fake_tensor.FakeTensor, "tolist", _listed(fake_tensor.FakeTensor.tolist)),
        (Guesses, "answers", answers),
        *((Guesses, name, False) for name in ("made", "numbers", "lacked")),
    ]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        stack.enter_context(mode := _FakeMode(allow_non_fake_inputs=True))
        yield stack.enter_context(_Guessing(mode))


class _FakeMode(fake_tensor.FakeTensorMode):
    """Of which operators that choose elements by data choose some, and give an answer where data have one."""

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return super().dispatch(func, types, args, kwargs or {})
        except own_errors.LACKING:
            if func in guesses.ASKING:
                return guesses.truth()
            if func not in guesses.CHOOSING:
                raise
            with self:
                made = [torch.empty(*each[:1], dtype=each[1]) for each in guesses.CHOOSING[func](*args, **kwargs or {})]
            return tuple(made) if len(made) > 1 else made[0]


class _Guessing(TorchFunctionMode):
    """What PyTorch cannot do without data, it does with guesses."""

    def __init__(self, mode: _FakeMode):
        super().__init__()
        self._mode = mode

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        try:
            return func(*args, **kwargs)
        except (NotImplementedError, RuntimeError, TypeError) as error:
            if isinstance(error, CERTAIN) or own_errors.is_own(error):
                raise
            try:
                made = guesses.of_guesses(func, args, kwargs)
            except Exception:
                Guesses.lacked = Guesses.lacked or isinstance(error, own_errors.LACKING)
                raise error from None
        with self._mode:
            return tree_map_only(Tensor, lambda t: torch.empty(t.shape, dtype=t.dtype), made)


def _device(tensor: Tensor, own: property) -> torch.device:
    """That of fake CUDA for the submission. Torch sets the mode aside where it asks for itself."""
    return CUDA if torch._C._len_torch_function_stack() else own.fget(tensor)  # type: ignore[misc]


def _listed(one_by_one: Callable) -> Callable:
    """In the place of a method that reads numbers back one by one: all of them are one copy, as with data."""

    def tolist(tensor: Tensor) -> Any:
        if tensor.numel() > guesses.MOST_READ:
            return one_by_one(tensor)
        copied_to_host(tensor)
        return guesses.listed(tensor)

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
