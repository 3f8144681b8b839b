"""Tensors without data that pass for CUDA tensors: with shapes, strides, dtypes and addresses, and no memory at all.

They are torch's meta tensors under a torch-function mode that answers for them. FakeTensorMode would not do: an
operator on a fake CUDA tensor asks CUDA for the current device, which a build without CUDA cannot answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from drkernel.judge.untrusted.simulated import cuda_shim

META = torch.device("meta")
_SMALL = 64
"""Elements that a tensor may have for its values to be kept, where they are known from how it was made."""


def install() -> None:
    """Patches torch.cuda and Triton's driver in this process, and enters the mode in this thread, for good."""
    cuda_shim._patch_cuda(SimpleNamespace(capture=None))
    cuda_shim._patch_driver()
    _patch_custom_operators()
    MODE.__enter__()


def without_data(model: nn.Module) -> nn.Module:
    """The model, its tensors replaced by tensors without data, plain attributes included."""
    model.to(META)
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                vars(module)[name] = value.to(META)
    return model


class _PassForCuda(TorchFunctionMode):
    """Makes meta tensors where CUDA tensors are asked for (the default), and answers for them as CUDA tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._default = META

    @contextlib.contextmanager
    def real(self) -> Iterator[None]:
        """A block in which tensors are made with data unless a device is named."""
        self._default = cuda_shim.CPU
        try:
            yield
        finally:
            self._default = META

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """A block in which the mode holds, also where torch has set it aside to run an operator."""
        with contextlib.nullcontext() if torch._C._len_torch_function_stack() else self:
            yield

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.device:
            return func(*args, **kwargs)
        if (answer := _ANSWERS.get(func)) is not None:
            return answer(*args, **kwargs)
        if func in _READS:
            return func(_with_data(args[0]), *args[1:], **kwargs)
        args = tuple(_on_meta(value) for value in args)
        if func is Tensor.to and len(args) > 1 and type(args[1]) is int:
            args = (args[0], META, *args[2:])
        if kwargs.get("device") is not None:
            kwargs["device"] = META if isinstance(kwargs["device"], int) else _on_meta(kwargs["device"])
        elif func in _FACTORIES:
            kwargs["device"] = self._default
        kwargs.pop("pin_memory", None)
        if kwargs.get("device") != META:
            return func(*args, **kwargs)
        kwargs.pop("generator", None)
        made = func(*args, **kwargs)
        return _with_values(made, func, args, kwargs) if func in _FACTORIES else made


def _with_values(made: Tensor, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    """Keeps what a small tensor was made of, for code that reads it back at once, such as a random seed."""
    if made.layout == torch.strided and made.numel() <= _SMALL:
        with contextlib.suppress(NotImplementedError, RuntimeError):
            made._made_of = made._version, func(*args, **{**kwargs, "device": cuda_shim.CPU})
    return made


def _with_data(tensor: Tensor) -> Tensor:
    """What a tensor was made of; the tensor itself where that is unknown or may have been overwritten."""
    version, values = getattr(tensor, "_made_of", (None, tensor))
    return values if version is None or version == tensor._version else tensor


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.device):
        return META if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return META
    return value


def _address(tensor: Tensor) -> int:
    """Where the tensor would lie: each storage at a multiple of 512 bytes, as CUDA's allocator has it."""
    vars(tensor).pop("_made_of", None)  # who asks may write there
    storage = tensor.untyped_storage()._cdata % 2**34
    return 2**45 + 512 * storage + tensor.storage_offset() * tensor.element_size()


_ANSWERS: dict[Any, Callable] = {
    Tensor.is_cuda.__get__: lambda tensor: True,
    Tensor.is_cpu.__get__: lambda tensor: False,
    Tensor.is_meta.__get__: lambda tensor: False,
    Tensor.device.__get__: lambda tensor: cuda_shim.CUDA,
    Tensor.get_device: lambda tensor: 0,
    Tensor.pin_memory: lambda tensor, *_, **__: tensor,
    Tensor.is_pinned: lambda tensor, *_, **__: False,
    Tensor.cuda: lambda tensor, *_, **__: tensor.to(META),
    Tensor.data_ptr: _address,
}
_FACTORIES = frozenset(_device_constructors())
_READS = frozenset(
    {Tensor.item, Tensor.tolist, Tensor.__int__, Tensor.__float__, Tensor.__bool__, Tensor.__index__, Tensor.numpy}
)
MODE = _PassForCuda()


def _patch_custom_operators() -> None:
    """Lets a torch.library operator run its own function: its launches are what is looked for, not its shapes."""
    from torch._library.custom_ops import CustomOpDef

    register = CustomOpDef._register_to_dispatcher

    def _register(self: Any, *args: Any, **kwargs: Any) -> None:
        self._abstract_fn = partial(_in_mode, self._init_fn)
        register(self, *args, **kwargs)

    CustomOpDef._register_to_dispatcher = _register
    CustomOpDef.register_fake = lambda self, fn: fn


def _in_mode(fn: Callable, *args: Any, **kwargs: Any) -> Any:
    with MODE.again():
        return fn(*args, **kwargs)
