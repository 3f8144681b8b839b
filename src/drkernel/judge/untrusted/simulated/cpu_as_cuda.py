"""Fake CUDA for the runner of the simulated device: CPU tensors, with their data, pass for CUDA tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from drkernel.judge.untrusted.fake_cuda import CPU, CUDA, FakeCudaMode, getter, patch_torch_cuda, patch_triton_driver

_ANSWERS = {
    getter("device"): lambda tensor: tensor.device if tensor.is_meta else CUDA,
    Tensor.cuda: lambda tensor, *_, **__: tensor,
}


def install(machine: Any) -> None:
    """Patches torch and Triton in this process and thread, for good. `machine`: an interpreter.Machine."""
    patch_torch_cuda(machine)
    patch_triton_driver()
    machine.fake_cuda = FakeCudaMode(CPU, _ANSWERS)
    machine.fake_cuda.__enter__()
