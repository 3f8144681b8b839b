"""Splits: train, validation, test. A key (a task id, a composition) belongs to one of them by its hash, everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

SPLITS = ("train", "validation", "test")


def split_of(key: str) -> str:
    """The split of a key: 80 % of all keys are in train, 10 % in validation, 10 % in test.

    >>> [split_of(key) for key in ("relu", "bias+gelu", "sigmoid")]
    ['train', 'train', 'validation']
    """
    return {8: "validation", 9: "test"}.get(_number(key) % 10, "train")


FEW = 50
"""Below so many keys of a set, their hashes seldom fall as they should: three of eight keys, say, in validation."""


def share_out(keys: Iterable[str]) -> dict[str, str]:
    """The splits of all keys of a set, of which each goes by hash.

    Of fewer than FEW keys, or where a split would have none, the tenth with the largest hashes is in test and the tenth
    before that in validation, at least one in each. Two keys are one of train and one of test; one goes by its hash.

    >>> share_out(["relu", "bias+gelu"]), share_out(["sigmoid"])
    ({'relu': 'train', 'bias+gelu': 'test'}, {'sigmoid': 'validation'})
    """
    splits = {key: split_of(key) for key in keys}
    whole = len(splits) >= FEW and set(splits.values()) == set(SPLITS)
    if whole or len(splits) < 2:
        return splits
    order = sorted(splits, key=_number)
    part = max(1, round(len(order) / 10))
    validation = part if len(order) > 2 else 0
    train = len(order) - part - validation
    named = ["train"] * train + ["validation"] * validation + ["test"] * part
    return splits | dict(zip(order, named, strict=True))


def _number(key: str) -> int:
    return int(hashlib.sha256(f"drkernel split {key}".encode()).hexdigest(), 16)
