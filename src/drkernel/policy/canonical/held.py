"""What a module holds: tensors, modules that are told as they are, numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from torch import Tensor, nn

_LEAVES = (
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
    nn.Transformer,
)
"""Modules that are told as they are."""
_ROLES = ("weight", "bias", "in_proj_weight", "in_proj_bias", "running_mean", "running_var")
ROLES = re.compile("|".join(_ROLES))
"""What tensors of PyTorch's modules are called. Others have names that somebody invented."""


def holds_tensors(module: nn.Module) -> bool:
    return any(tensor is not None for tensor in (*module._parameters.values(), *module._buffers.values()))


def whole(model: nn.Module, parts: Set[str] = frozenset(), path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules that are told as they are, by path; not those inside them.

    parts: paths of more than PyTorch's.
    """
    for name, module in model.named_children():
        if isinstance(module, _LEAVES) or path + name in parts:
            yield path + name, module
        else:
            yield from whole(module, parts, f"{path}{name}.")


def tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, buffers and other tensors of a module, by path."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                yield f"{path}.{name}".strip("."), value


def numbers_of(model: nn.Module) -> Iterator[tuple[str, int | float]]:
    """Numbers that modules of the task's own classes hold, by path; not flags and places, and not what a class of
    PyTorch's that they are made of holds: the channels of a convolution."""
    for path, module in model.named_modules():
        if type(module).__module__ == type(model).__module__:
            usual = _usual(type(module))
            for name, value in vars(module).items():
                if not name.startswith("_") and name not in usual and type(value) in (int, float):
                    yield f"{path}.{name}".lstrip("."), value


def _usual(kind: type) -> Set[str]:
    """The attributes that the classes of PyTorch's among those that a class is made of have."""
    bases = [base for base in kind.__mro__ if base.__module__.startswith("torch.nn.modules")]
    return {name for base in bases for name in getattr(base, "__constants__", ())}


def elements_of(model: nn.Module) -> Iterator[tuple[str, int]]:
    """Whole numbers in tuples and lists that modules of the task's own classes hold, by path, and those of recurrent
    layers, of which people make states (`self.lstm.hidden_size`)."""
    for path, module in model.named_modules():
        if type(module).__module__ == type(model).__module__:
            usual = _usual(type(module))
            for name, value in vars(module).items():
                if name in usual:
                    continue
                if isinstance(value, tuple | list) and value and all(type(part) is int for part in value):
                    yield from ((f"{path}.{name}.{place}".lstrip("."), part) for place, part in enumerate(value))
        elif isinstance(module, nn.RNNBase):
            yield from ((f"{path}.{name}", getattr(module, name)) for name in ("hidden_size", "num_layers"))


def absent(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Paths of modules, and names of tensors that they might have and do not have."""
    for path, module in model.named_modules():
        yield from ((path, role) for role in _ROLES if not isinstance(getattr(module, role, None), Tensor))


_LEAST_OWN = 3
"""The least number that is taken for one of the module that runs; others are equal by chance, as strides are."""


class Named:
    """Names of whole numbers where a value has one: in the whole module, or in the part of it whose `forward` runs."""

    def __init__(self, model: nn.Module | None = None, names: Mapping[str, tuple[int, str]] | None = None):
        """names: a number and its name, by path."""
        names = names or {}
        self.everywhere = _once(names.values())
        self.now = self.everywhere
        for path, module in model.named_modules() if model else ():
            own = _once(named for place, named in names.items() if place.rpartition(".")[0] == path)
            if own := {number: name for number, name in own.items() if number >= _LEAST_OWN}:
                self._watch(module, own)

    def _watch(self, module: nn.Module, own: Mapping[int, str]) -> None:
        def forward(*args: Any, **kwargs: Any) -> Any:
            before, self.now = self.now, {**self.now, **own}
            try:
                return inner(*args, **kwargs)
            finally:
                self.now = before

        inner, module.forward = module.forward, forward


def _once(named: Iterable[tuple[int, str]]) -> dict[int, str]:
    """Names by number, of numbers that have one."""
    pairs = list(named)
    often = Counter(number for number, _ in pairs)
    return {number: name for number, name in pairs if often[number] == 1}
