"""What a module holds: tensors, modules that are told as they are, numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
ROLES = re.compile(r"(in_proj_)?(weight|bias)|running_(mean|var)")
"""What tensors of PyTorch's modules are called. Others have names that somebody invented."""


def holds_tensors(module: nn.Module) -> bool:
    return any(tensor is not None for tensor in (*module._parameters.values(), *module._buffers.values()))


def whole(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules that are told as they are, by path; not those inside them."""
    for name, module in model.named_children():
        if isinstance(module, _LEAVES):
            yield path + name, module
        else:
            yield from whole(module, f"{path}{name}.")


def tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, buffers and other tensors of a module, by path."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                yield f"{path}.{name}".strip("."), value


def numbers_of(model: nn.Module) -> Iterator[tuple[str, int | float]]:
    """Numbers that modules of the task's own classes hold, by path; not flags and places."""
    for path, module in model.named_modules():
        if type(module).__module__ == type(model).__module__:
            for name, value in vars(module).items():
                if not name.startswith("_") and type(value) in (int, float):
                    yield f"{path}.{name}".lstrip("."), value
