"""Fake CUDA for the runner of the simulated device: CPU tensors, with their data, pass for CUDA tensors.

As on a GPU, the host cannot read their memory: addresses are not those of the process, and what copies data to the host
is counted. Threads are recorded like the thread that started them.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor

from drkernel.judge.untrusted.fake_cuda import CPU, CUDA, FakeCudaMode, getter, patch_torch_cuda, patch_triton_driver

ADDRESSES = 1 << 46
"""What submissions see in addition to a tensor's address: no process has memory there."""

_ANSWERS = {
    getter("device"): lambda tensor: tensor.device if tensor.is_meta else CUDA,
    Tensor.cuda: lambda tensor, *_, **__: tensor,
    Tensor.data_ptr: lambda tensor: tensor.data_ptr() + ADDRESSES,
}
_TO_HOST = (Tensor.numpy, Tensor.tolist, Tensor.__array__, Tensor.__dlpack__)


def install(machine: Any) -> None:
    """Patches torch and Triton in this process and thread, for good. `machine`: an interpreter.Machine."""
    patch_torch_cuda(machine)
    patch_triton_driver()
    machine.addresses = ADDRESSES
    answers = {function: _counted(machine, function) for function in _TO_HOST}
    machine.fake_cuda = FakeCudaMode(CPU, _ANSWERS | answers)
    machine.fake_cuda.__enter__()
    _follow_threads(machine)


def _counted(machine: Any, function: Callable) -> Callable:
    """A function that copies a tensor's data to the host, where anything may be computed from them."""

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
        with contextlib.ExitStack() as stack:
            for mode in machine.suspended():
                stack.enter_context(mode)
            start(thread)

    threading.Thread._bootstrap_inner = followed  # type: ignore[attr-defined]
