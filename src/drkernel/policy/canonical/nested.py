"""Inputs and outputs that are tensors in tuples, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def tensors_in(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of an input, and what they are called.

    >>> [name for name, _ in tensors_in((torch.zeros(1), [torch.zeros(1)]), "in0")]
    ['in0[0]', 'in0[1][0]']
    """
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, tuple | list):
        for place, part in enumerate(value):
            yield from tensors_in(part, f"{name}[{place}]")


def written_result(result: Any, name: Callable[[torch.Tensor], str]) -> str:
    """What a `forward` returns, as an expression.

    >>> written_result({"a": torch.zeros(1), "b": (torch.ones(1), None)}, lambda t: f"t{int(t)}")
    "{'a': t0, 'b': (t1, None)}"
    >>> written_result((torch.zeros(1), torch.ones(1)), lambda t: f"t{int(t)}")
    't0, t1'
    """
    text = _written(result, name)
    return text[1:-1] if type(result) is tuple and len(result) > 1 else text


def _written(value: Any, name: Callable[[torch.Tensor], str]) -> str:
    if isinstance(value, torch.Tensor):
        return name(value)
    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {_written(part, name)}' for key, part in value.items())}}}"
    if isinstance(value, tuple | list):
        inside = ", ".join(_written(part, name) for part in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    return repr(value)
