"""Objects of a task's own classes on their way to a submission, which lacks the classes: it gets their attributes.

Tasks hand a constructor its configuration as a dataclass or a named tuple. The trusted side makes records of such
objects; only the other one makes objects of records.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

MAX_DEPTH = 16
"""Values lie within so many others at most."""


@dataclasses.dataclass(frozen=True)
class Record:
    """What an object has: attributes by name, those that it computes included."""

    values: dict[str, Any]
    is_tuple: bool = False


def recorded(value: Any, depth: int = 0) -> Any:
    """The value, with records in the place of objects that have attributes, and of named tuples; not of those that lie
    too deep to be handed on."""
    inner = lambda item: recorded(item, depth + 1)
    if depth > MAX_DEPTH or isinstance(value, (bool, int, float, str, Tensor, nn.Module)) or callable(value):
        return value
    if isinstance(value, dict):
        return {key: inner(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return Record(dict(zip(value._fields, map(inner, value), strict=True)), is_tuple=True)
    if isinstance(value, (list, tuple)):
        return [inner(item) for item in value] if isinstance(value, list) else tuple(map(inner, value))
    if not hasattr(value, "__dict__"):
        return value
    found = {name: getattr(value, name) for name in dir(value) if not name.startswith("_")}
    return Record({name: inner(item) for name, item in found.items() if not callable(item)})


class _Fields(tuple):
    """A tuple whose values have names."""


def made(values: dict[str, Any], is_tuple: bool) -> Any:
    """An object with these attributes."""
    if not is_tuple:
        return SimpleNamespace(**values)
    fields = _Fields(values.values())
    fields.__dict__.update(values)
    return fields
