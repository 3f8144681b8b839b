"""Values that end a process: on a GPU, some operators assert that their arguments lie in their domain.

A failed assertion leaves no CUDA context to go on with. On a CPU the same operator raises an error, after which the
judge tries milder values (`regimes`).
"""

from __future__ import annotations

import contextlib
from typing import Any

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.tasks import module
from drkernel.tasks.module import Reference

_WORDS = ("binary_cross_entropy", "BCELoss")
"""What a source has that calls one of them."""


def forward(reference: Reference, model: nn.Module, inputs: list) -> Any:
    """The reference's outputs; not for what is timed.

    Raises:
        DrKernelError: the reference fails, or an operator would end the process.
    """
    asserts = module.DEVICE is not None and any(word in reference.task.source for word in _WORDS)
    with InDomain() if asserts else contextlib.nullcontext():
        return reference.forward(model, inputs)


class InDomain(TorchDispatchMode):
    """Raises RuntimeError, as a CPU does, instead of what a GPU does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.overloadpacket.__name__ == "binary_cross_entropy":
            probabilities = args[0]
            if not ((probabilities >= 0) & (probabilities <= 1)).all():
                raise RuntimeError("binary_cross_entropy: all elements of input should be between 0 and 1")
        return func(*args, **(kwargs or {}))
