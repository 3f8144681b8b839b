"""Tensors in what a `forward` and its calls take and give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from drkernel.policy.canonical.arguments import Ref, leaves


def made_of(result: Any) -> tuple[list[Tensor], list[Ref]]:
    """The tensors in a result, and what stands for them."""
    made = [value for value in leaves(result) if isinstance(value, Tensor)]
    return made, [Ref("", tuple(value.shape), dtype_of(value)) for value in made]


def pattern_of(result: Any) -> str:
    """How a result is taken apart, with a place for each tensor.

    >>> one = torch.zeros(1)
    >>> pattern_of(one), pattern_of((one, (one, one))), pattern_of((one, None))
    ('{}', '{}, ({}, {})', '{}, _')
    """
    if not isinstance(result, tuple | list):
        return "{}" if isinstance(result, Tensor) else "_"
    return ", ".join(f"({pattern_of(part)})" if isinstance(part, tuple | list) else pattern_of(part) for part in result)


def dtype_of(tensor: Tensor) -> str:
    """float32, float16, bfloat16, bool; `int` of both kinds of integers."""
    name = str(tensor.dtype).removeprefix("torch.")
    return {"int64": "int", "int32": "int"}.get(name, name)


def told_as(value: Any) -> str:
    """An input as a policy reads it: its shape, with the type where that is not float32."""
    if isinstance(value, tuple | list) and any(isinstance(part, Tensor) for part in leaves(value)):
        return f"({', '.join(map(told_as, value))})"
    if not isinstance(value, Tensor):
        return repr(value)
    kind = dtype_of(value)
    return f"{kind} {tuple(value.shape)}" if kind != "float32" else str(tuple(value.shape))


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with every part of it changed; tuples become lists."""
    if isinstance(value, dict):
        return {key: replaced(part, change) for key, part in value.items()}
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, tuple | list):
        return [replaced(part, change) for part in value]
    return change(value)
