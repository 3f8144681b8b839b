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


def share_out(keys: Iterable[str]) -> dict[str, str]:
    """The splits of all keys of a set, of which each goes by hash; but two or more have one in train and one in test.

    Where the hashes leave one of the two without a key, it gets one of validation, or else one of the other.

    >>> share_out(["relu", "bias+gelu"]), share_out(["sigmoid"])
    ({'relu': 'train', 'bias+gelu': 'test'}, {'sigmoid': 'validation'})
    """
    splits = {key: split_of(key) for key in keys}
    order = sorted(splits, key=_number)
    for needed, other in (("train", "test"), ("test", "train")):
        spare = [key for key in order if splits[key] == "validation"]
        spare += [key for key in order if splits[key] == other][1:]
        if len(splits) > 1 and needed not in splits.values():
            splits[spare[0]] = needed
    return splits


def _number(key: str) -> int:
    return int(hashlib.sha256(f"drkernel split {key}".encode()).hexdigest(), 16)
