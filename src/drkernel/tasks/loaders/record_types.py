"""The fields of a task as a record states them, each checked: what was found, what was expected."""

from __future__ import annotations

from typing import Any

from drkernel.tasks.splits import SPLITS
from drkernel.types import PRECISIONS, DrKernelError

_TEXTS = ("source", "entry_point", "family")
_WORDS = {"split": SPLITS, "precision": PRECISIONS}


def checked(record: dict[str, Any], place: str) -> dict[str, Any]:
    """The fields of a record that have a value, of the types that a task has. A whole number as `id` becomes text,
    and 2.0 as `level` a whole number: tables with gaps have none. `place` says where it was found.

    >>> checked({"id": 3, "source": "x", "level": 2.0, "small": {"N": 4, "M": None}}, "row 0")
    {'id': '3', 'source': 'x', 'level': 2, 'small': {'N': 4}}
    """
    found = dict(record)
    if type(found.get("id")) is int:
        found["id"] = str(found["id"])
    if isinstance(found.get("level"), float) and found["level"].is_integer():
        found["level"] = int(found["level"])
    for key in ("small", "info"):
        if isinstance(found.get(key), dict):  # a table gives every row the keys of all rows
            found[key] = {name: value for name, value in found[key].items() if value is not None}
    _expect(isinstance(found.get("id"), str) and found["id"], place, "id", record, "text or a whole number")
    for key in _TEXTS:
        _expect(isinstance(found.get(key, ""), str), place, key, record, "text")
    _expect("source" in found, place, "source", record, "text")
    for key, words in _WORDS.items():
        _expect(found.get(key, words[0]) in words, place, key, record, f"one of {', '.join(words)}")
    _expect(type(found.get("level", 0)) is int, place, "level", record, "a whole number")
    small = found.get("small", {})
    sizes = isinstance(small, dict) and all(isinstance(k, str) and type(v) is int for k, v in small.items())
    _expect(sizes, place, "small", record, "an object of names and whole numbers")
    _expect(isinstance(found.get("info", {}), dict), place, "info", record, "an object")
    return found


def shown(value: object) -> str:
    """A value as a message has it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _expect(holds: object, place: str, key: str, record: dict[str, Any], expected: str) -> None:
    if not holds:
        raise DrKernelError(f"{place}: {key!r}: found {shown(record.get(key))}, expected {expected}")
