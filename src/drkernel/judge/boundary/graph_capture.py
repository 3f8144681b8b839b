"""Notes the operators that a CUDA graph captures, so that they can be executed one by one instead of a replay.

A replayed graph runs no Python, so nothing in it can be counted, skipped or timed. A recording therefore executes the
noted steps. On the simulated device, where there are no graphs, the steps are the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from drkernel.judge.boundary.aten import moves_data, without_compiler
from drkernel.judge.boundary.custom_operators import unrecorded
from drkernel.judge.boundary.witness import executing


@without_compiler
class CaptureMode(TorchDispatchMode):
    """Executes operators and appends to `steps` a call of `replay_operator` for each that moves data."""

    def __init__(self, steps: list[Callable[[], None]]):
        super().__init__()
        self._steps = steps

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if moves_data(func):
            self._steps.append(functools.partial(replay_operator, func, args, kwargs, result))
        return result


def replay_operator(func: Any, args: tuple, kwargs: dict, result: Any) -> None:
    """Executes an operator again and writes what it returns into the tensors that it returned during the capture."""
    fresh = func(*args, **kwargs)
    with torch.no_grad(), torch._C.DisableTorchFunction(), unrecorded():
        for old, new in zip(tree_leaves(result), tree_leaves(fresh), strict=True):
            if isinstance(old, Tensor) and old is not new:
                with executing("aten::copy_"):
                    old.copy_(new)
