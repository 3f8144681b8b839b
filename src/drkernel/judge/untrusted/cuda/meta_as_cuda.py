"""Fake CUDA for the tracer: meta tensors pass for CUDA tensors. They have shapes, strides and addresses, but no data.

FakeTensorMode would not do. An operator on one of its CUDA tensors asks CUDA for the current device, and a build of
torch without CUDA cannot answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_map_only

from drkernel.judge.untrusted.fake_cuda import (
    CPU,
    CUDA,
    FakeCudaMode,
    getter,
    patch_torch_cuda,
    patch_triton_driver,
    replace,
)

META = torch.device("meta")
MAX_KNOWN_VALUES = 64
"""A factory's tensor of at most so many elements remembers its values, which code may read back at once."""
MAX_GUESSED, MAX_TRUE, MAX_READ = 2**20, 64, 1024
"""Elements that are guessed at once; truth values that are alike, so that loops end; how often it is done."""


def install() -> None:
    """Patches torch.cuda and Triton's driver in this process, and enters the mode in this thread, for good."""
    patch_torch_cuda(SimpleNamespace(capture=None))
    patch_triton_driver()
    _patch_custom_operators()
    MODE.__enter__()


def without_data(model: nn.Module) -> nn.Module:
    """The model with meta tensors in the place of its tensors, plain attributes included."""
    model.to(META)
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                vars(module)[name] = value.to(META)
    return model


class MetaAsCudaMode(FakeCudaMode):
    """Makes meta tensors where CUDA tensors are asked for, which is the default, and answers for them."""

    def __init__(self) -> None:
        super().__init__(META, _ANSWERS)
        self._default = META
        self._guess: int | None = None
        self._guesses = 0

    @contextlib.contextmanager
    def guessing(self, number: int | None) -> Iterator[None]:
        """A block in which what needs data works on tensors of this number or its truth; with None, nothing does."""
        self._guess, self._guesses = number, 0
        try:
            yield
        finally:
            self._guess = None

    @contextlib.contextmanager
    def tensors_with_data(self) -> Iterator[None]:
        """A block in which tensors are made with data unless a device is named."""
        self._default = CPU
        try:
            yield
        finally:
            self._default = META

    @contextlib.contextmanager
    def reentered(self) -> Iterator[None]:
        """A block in which the mode holds, also where torch has set it aside to run an operator."""
        with contextlib.nullcontext() if torch._C._len_torch_function_stack() else self:
            yield

    def _call(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        try:
            return self._without_data(func, args, kwargs)
        except (NotImplementedError, RuntimeError):
            self._guesses += 1
            if self._guess is None or self._guesses > MAX_READ:
                raise
        if func in _ASKS:
            return bool(self._guess) == (self._guesses <= MAX_TRUE)
        guessed = tree_map_only(
            Tensor, self._guessed, (args, {**kwargs, "device": CPU} if "device" in kwargs else kwargs)
        )
        return tree_map_only(Tensor, lambda tensor: tensor.to(META), func(*guessed[0], **guessed[1]))

    def _guessed(self, tensor: Tensor) -> Tensor:
        """A tensor of guesses in the place of one without data.

        Raises:
            RuntimeError: it is too large.
        """
        assert self._guess is not None
        if tensor.numel() > MAX_GUESSED:
            raise RuntimeError("too many numbers to guess them")
        number = bool(self._guess) == (self._guesses <= MAX_TRUE) if tensor.dtype == torch.bool else self._guess
        return torch.full(tensor.shape, number, dtype=tensor.dtype, device=CPU)

    def _without_data(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if func in _READS:
            return func(_with_data(args[0]), *args[1:], **kwargs)
        if kwargs.get("device") is None and func in _FACTORIES:
            kwargs["device"] = self._default
        if kwargs.get("device") != META:
            return func(*args, **kwargs)
        kwargs.pop("generator", None)
        made = func(*args, **kwargs)
        return _with_values(made, func, args, kwargs) if func in _FACTORIES else made


def _with_values(made: Tensor, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    """Remembers the values of a small tensor, for code that reads them back at once, such as a random seed."""
    if made.layout == torch.strided and made.numel() <= MAX_KNOWN_VALUES:
        with contextlib.suppress(NotImplementedError, RuntimeError):
            vars(made)["_known"] = made._version, func(*args, **{**kwargs, "device": CPU})
    return made


def _with_data(tensor: Tensor) -> Tensor:
    """A CPU tensor with the remembered values; the tensor itself where they are unknown or may be overwritten. One
    without elements has none that could be unknown."""
    if not tensor.numel():
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=CPU)
    version, values = getattr(tensor, "_known", (None, tensor))
    return values if version is None or version == tensor._version else tensor


def _address(tensor: Tensor) -> int:
    """Where the tensor would lie: each storage at a multiple of 512 bytes, as CUDA's allocator has it."""
    vars(tensor).pop("_known", None)  # who asks for the address may write there
    storage = tensor.untyped_storage()._cdata % 2**34
    return 2**45 + 512 * storage + tensor.storage_offset() * tensor.element_size()


_ANSWERS: dict[Any, Callable] = {
    getter("is_meta"): lambda tensor: False,
    getter("device"): lambda tensor: CUDA,
    Tensor.cuda: lambda tensor, *_, **__: tensor.to(META),
    Tensor.data_ptr: _address,
}
_FACTORIES = frozenset(_device_constructors())
_READS = frozenset(
    {Tensor.item, Tensor.tolist, Tensor.__int__, Tensor.__float__, Tensor.__bool__, Tensor.__index__, Tensor.numpy}
)
_ASKS = frozenset({torch.equal, Tensor.equal, torch.allclose, Tensor.allclose})
"""What compares numbers."""
MODE = MetaAsCudaMode()


def _patch_custom_operators() -> None:
    """Lets a torch.library operator run its own function: its launches are what is looked for, not its shapes."""
    from torch._library.custom_ops import CustomOpDef

    register = CustomOpDef._register_to_dispatcher

    def _register(self: Any, *args: Any, **kwargs: Any) -> None:
        self._abstract_fn = partial(_in_mode, self._init_fn)
        register(self, *args, **kwargs)

    replace(CustomOpDef, _register_to_dispatcher=_register, register_fake=lambda self, fn: fn)


def _in_mode(fn: Callable, *args: Any, **kwargs: Any) -> Any:
    with MODE.reentered():
        return fn(*args, **kwargs)
