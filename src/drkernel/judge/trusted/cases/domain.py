"""Values that end a process: on a GPU, some operators assert that their arguments lie in their domain.

A failed assertion leaves no CUDA context to go on with. On a CPU the same operator raises an error, after which the
judge tries milder values (`regimes`) or other sizes: tokens of a larger vocabulary than the table has are one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.tasks import module
from drkernel.tasks.module import Reference

_WORDS = ("binary_cross_entropy", "BCELoss")
"""What a source has that calls one of them."""
_INDEX_WORDS = (
    "randint", "randperm", "arange", "long", "int32", "int64", "multinomial", "argm", "argsort", "topk", "bucketize",
    "searchsorted", "nonzero",
)  # fmt: skip
"""What a source has that makes whole numbers, which may be indices."""
_ROUNDING = 0.01
"""How far noise may take a number beyond its domain: what rounds numbers does not take any beyond one."""


def forward(reference: Reference, model: nn.Module, inputs: list, noise: bool = False) -> Any:
    """The reference's outputs; not for what is timed.

    Args:
        noise: whether values are other than the task's by rounding.

    Raises:
        DrKernelError: the reference fails, or an operator would end the process.
    """
    words = (*_WORDS, *_INDEX_WORDS) if module.DEVICE else _WORDS
    asserts = any(word in reference.task.source for word in words)
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
        name = func.overloadpacket.__name__
        for indices, least, places in _indices(name, _by_name(func, args, kwargs or {})):
            if indices.numel() and not ((indices >= least) & (indices < places)).all():
                raise IndexError(f"{name}: an index is out of range, where there are {places} places")
        return func(*args, **(kwargs or {}))


def _by_name(func: Any, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    names = (argument.name for argument in func._schema.arguments)
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _indices(name: str, given: Mapping[str, Any]) -> Iterator[tuple[Tensor, int, int]]:
    """The indices that an operator is given, the least that it takes, and how many places there are."""
    own, index = given.get("self"), given.get("index")
    if name.removeprefix("_").startswith("embedding") and name.endswith(("embedding", "bag", "forward_only")):
        yield given["indices"], 0, given["weight"].shape[0]
    elif name.startswith("nll_loss") and name.endswith("forward") and isinstance(own, Tensor):
        target = given["target"]
        yield target[target != given.get("ignore_index", -100)], 0, own.shape[min(1, own.dim() - 1)]
    elif name in ("index", "index_put", "index_put_", "_index_put_impl_") and isinstance(own, Tensor):
        dim = 0
        for each in given["indices"]:
            is_mask = isinstance(each, Tensor) and each.dtype in (torch.bool, torch.uint8)
            if isinstance(each, Tensor) and not is_mask:
                yield each, -own.shape[dim], own.shape[dim]
            dim += each.dim() if is_mask else 1
    elif isinstance(index, Tensor) and isinstance(own, Tensor):
        places = own.shape[given["dim"]] if "dim" in given and own.dim() else max(1, own.numel())
        yield index, 0 if "dim" in given else -places, places
