"""Fake CUDA for the runner of the simulated device: CPU tensors, with their data, pass for CUDA tensors.

As on a GPU, the host cannot read their memory: addresses are not those of the process, and what copies data to the host
is counted. Threads are recorded like the thread that started them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

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
_TO_HOST = ("numpy", "tolist", "__dlpack__")
"""Methods that give a tensor's data to the host at once; all others use these, or operators."""


def install(machine: Any) -> None:
    """Patches torch and Triton in this process and thread, for good. `machine`: an interpreter.Machine."""
    patch_torch_cuda(machine)
    patch_triton_driver()
    machine.addresses = ADDRESSES
    methods = {name: getattr(Tensor, name) for name in _TO_HOST}
    replace(Tensor, **{name: _counted(machine, method) for name, method in methods.items()})
    once = {getattr(Tensor, name): method for name, method in methods.items()}  # torch hands a mode what is replaced
    machine.fake_cuda = FakeCudaMode(CPU, _ANSWERS | once)
    machine.fake_cuda.__enter__()
    _follow_threads(machine)
    lock(Tensor, FakeCudaMode)


def _counted(machine: Any, function: Callable) -> Callable:
    """A method that copies a tensor's data to the host, where anything may be computed from them.

    It takes the method's place, since a mode is off while it handles another function, which may call any object.
    """

    @functools.wraps(function)
    def copy(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if machine.session is not None:
            machine.session.copied_to_host(tensor)
        return function(tensor, *args, **kwargs)

    return copy


def _follow_threads(machine: Any) -> None:
    """Enters the recorder and fake CUDA in every thread: torch keeps them per thread."""
    start: Any = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    @functools.wraps(start)
    def followed(thread: threading.Thread) -> None:
        with entered(machine.suspended):
            start(thread)

    threading.Thread._bootstrap_inner = followed  # type: ignore[attr-defined]
