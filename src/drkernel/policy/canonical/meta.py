"""Tasks that run without data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from drkernel.tasks.module import Reference
from drkernel.types import Task


class OnMeta(TorchFunctionMode):
    """Nothing leaves the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = "meta"
        if func in (Tensor.cuda, Tensor.cpu):
            return args[0]
        if func is Tensor.to:
            args = (args[0], *(a for a in args[1:] if not isinstance(a, str | torch.device)))
            if len(args) == 1 and not kwargs.get("dtype"):
                return args[0]
        return func(*args, **kwargs)


def long_parts(source: str, entry_point: str, most: int) -> frozenset[str]:
    """The modules, by path, that make the most calls, so many of them that `most` calls at most are left. The module
    whose `forward` is told is none of them. Of modules of one class, all are."""
    model, inputs = made_from(source, entry_point)
    counter = _Counted(model)
    with counter:
        model(*inputs)
    return counter.longest(most)


def made_from(source: str, entry_point: str) -> tuple[nn.Module, Sequence[Any]]:
    """The module of a task in evaluation mode, and its inputs."""
    reference = Reference(Task("task", source, entry_point=entry_point))
    return reference.model(seed=0).eval(), reference.inputs(seed=0)


class _Counted(TorchFunctionMode):
    """Counts the calls of functions that are made under it, by the module of the task's own whose `forward` makes
    them."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self._calls = Counter[str]()
        self._running = [""]
        self._kinds = {path: type(module) for path, module in model.named_modules()}
        for path, module in model.named_modules():
            if path and type(module).__module__ == type(model).__module__:
                self._watch(module, path)

    def _watch(self, module: nn.Module, path: str) -> None:
        def forward(*args: Any, **kwargs: Any) -> Any:
            self._calls[self._running[-1]] += 1
            self._running.append(path)
            try:
                return inner(*args, **kwargs)
            finally:
                self._running.pop()

        inner, module.forward = module.forward, forward

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._calls[self._running[-1]] += 1
        return func(*args, **(kwargs or {}))

    def longest(self, most: int) -> frozenset[str]:
        left, found = Counter(self._calls), set[str]()
        while left.total() > most and any(left):
            path = max(filter(None, left), key=left.__getitem__)
            alike = {one for one in left if self._kinds[one] is self._kinds[path]}
            found |= alike
            for inside in [one for one in left if any(f"{one}.".startswith(f"{whole}.") for whole in alike)]:
                del left[inside]
        return frozenset(found)


def of_few_steps(layer: nn.RNNBase, forward: Callable[..., Any]) -> Callable[..., Any]:
    """A recurrent layer's `forward` that executes two of its steps: without data all make the same shapes, and six
    layers of 512 steps take seconds."""

    def shortened(*args: Any, **kwargs: Any) -> Any:
        if not args or not isinstance(args[0], Tensor) or not args[0].is_meta:
            return forward(*args, **kwargs)
        along = 1 if layer.batch_first and args[0].dim() == 3 else 0
        few, last = forward(args[0].narrow(along, 0, min(2, args[0].shape[along])), *args[1:], **kwargs)
        shape = list(few.shape)
        shape[along] = args[0].shape[along]
        return few.new_empty(shape), last

    return shortened
