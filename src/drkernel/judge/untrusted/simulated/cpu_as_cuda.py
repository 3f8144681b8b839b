"""Fake CUDA for the runner of the simulated device: CPU tensors, with their data, pass for CUDA tensors.

As on a GPU, the host cannot read their memory: addresses are not those of the process, and what copies data to the host
is counted. Threads are recorded like the thread that started them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drkernel.judge.boundary.custom_operators import entered
from drkernel.judge.untrusted.fake_cuda import (
    CPU,
    CUDA,
    FakeCudaMode,
    getter,
    patch_torch_cuda,
    patch_triton_driver,
    replace,
)
from drkernel.judge.untrusted.simulated.opaque import lock

ADDRESSES = 1 << 46
"""What submissions see in addition to a tensor's address: no process has memory there."""

_ANSWERS = {
    getter("device"): lambda tensor: tensor.device if tensor.is_meta else CUDA,
    Tensor.cuda: lambda tensor, *_, **__: tensor,
    Tensor.data_ptr: lambda tensor: tensor.data_ptr() + ADDRESSES,
}
_SHARING = frozenset({torch.as_tensor, torch.asarray})
"""Functions that make tensors of the host's memory, and torch.from_numpy, which asks no mode."""
_ON_HOST = ("apply_", "map_", "map2_")
"""Methods that call Python code with each number, which tensors of a GPU do not have."""
_TO_HOST = ("numpy", "tolist", "__dlpack__")
"""Methods that give a tensor's data to the host at once; all others use these, or operators."""


def install(machine: Any) -> None:
    """Patches torch and Triton in this process and thread, for good. `machine`: an interpreter.Machine."""
    patch_torch_cuda(machine)
    patch_triton_driver()
    _register_for_cuda()
    machine.addresses = ADDRESSES
    methods = {name: getattr(Tensor, name) for name in _TO_HOST}
    replace(Tensor, **{name: _counted(machine, method) for name, method in methods.items()})
    once = {getattr(Tensor, name): method for name, method in methods.items()}  # torch hands a mode what is replaced
    replace(Tensor, **dict.fromkeys(_ON_HOST, _refused))
    from_numpy = torch.from_numpy
    replace(torch, from_numpy=lambda array: from_numpy(array).clone())
    machine.fake_cuda = _HostApart(CPU, _ANSWERS | once)
    machine.fake_cuda.__enter__()
    _follow_threads(machine)
    lock(Tensor, FakeCudaMode, _HostApart)


class _HostApart(FakeCudaMode):
    """No tensor shares the host's memory, which the host may write at any time."""

    def _call(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        return result.clone() if func in _SHARING and not (args and isinstance(args[0], Tensor)) else result


def _register_for_cuda() -> None:
    """An operator's implementation for CUDA is called with CPU tensors, and one for CPU tensors never beside it."""
    opened = torch._C._dispatch_library
    for_cuda: set[str] = set()

    def library(kind: str, namespace: str, *place: Any) -> Any:
        inner: Any = opened(kind, namespace, *place)

        def impl(name: str, key: str, function: Any, with_keyset: bool = False) -> None:
            operator = f"{namespace}::{name.rpartition('::')[2]}"
            if "CUDA" in key:
                for_cuda.add(operator)
            if "CPU" not in key or operator not in for_cuda:
                inner.impl(name, key.replace("CUDA", "CPU"), function, with_keyset)

        return SimpleNamespace(**vars(inner) | {"impl": impl})

    torch._C._dispatch_library = library  # type: ignore[assignment]


def _refused(tensor: Tensor, *_: Any) -> None:
    raise TypeError("this method is only implemented on CPU tensors")


def _counted(machine: Any, function: Callable) -> Callable:
    """A method that copies a tensor's data to the host, where anything may be computed from them.

    It takes the method's place, since a mode is off while it handles another function, which may call any object.
    """

    @functools.wraps(function)
    def copy(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if machine.session is not None:
            machine.session.copied_to_host(tensor)
        found = function(tensor, *args, **kwargs)
        return found.copy() if isinstance(found, np.ndarray) else found

    return copy


def _follow_threads(machine: Any) -> None:
    """Enters the recorder and fake CUDA in every thread: torch keeps them per thread."""
    start: Any = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    @functools.wraps(start)
    def followed(thread: threading.Thread) -> None:
        with entered(machine.suspended):
            start(thread)

    threading.Thread._bootstrap_inner = followed  # type: ignore[attr-defined]
