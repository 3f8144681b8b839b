"""Values that end a process: on a GPU, some operators assert that their arguments lie in their domain.

A failed assertion leaves no CUDA context to go on with. On a CPU the same operator raises an error, after which the
judge tries milder values (`regimes`).
"""

from __future__ import annotations

import contextlib
from typing import Any

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.tasks.module import Reference

_WORDS = ("binary_cross_entropy", "BCELoss")
"""What a source has that calls one of them."""
_ROUNDING = 0.01
"""How far noise may take a number beyond its domain: what rounds numbers does not take any beyond one."""


def forward(reference: Reference, model: nn.Module, inputs: list, noise: bool = False) -> Any:
    """The reference's outputs; not for what is timed.

    Args:
        noise: whether values are other than the task's by rounding.

    Raises:
        DrKernelError: the reference fails, or an operator would end the process.
    """
    asserts = any(word in reference.task.source for word in _WORDS)
    with InDomain(_ROUNDING if noise else 0.0) if asserts else contextlib.nullcontext():
        return reference.forward(model, inputs)


class InDomain(TorchDispatchMode):
    """Raises RuntimeError, as a CPU does, instead of what a GPU does. Probabilities that noise took beyond one are one.

    Args:
        beyond: how far a value may lie outside.
    """

    def __init__(self, beyond: float = 0.0):
        super().__init__()
        self._beyond = beyond

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.overloadpacket.__name__ == "binary_cross_entropy":
            probabilities, *others = args
            nearest = probabilities.clamp(0.0, 1.0)
            if not ((probabilities - nearest).abs() <= self._beyond).all():
                raise RuntimeError("binary_cross_entropy: all elements of input should be between 0 and 1")
            args = nearest, *others
        return func(*args, **(kwargs or {}))
