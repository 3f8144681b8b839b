"""Splits: train, validation, test. A key (a task id, a composition) belongs to one of them by its hash, everywhere."""

from __future__ import annotations

import hashlib

SPLITS = ("train", "validation", "test")


def split_of(key: str) -> str:
    """The split of a key: 80 % of all keys are in train, 10 % in validation, 10 % in test.

    >>> [split_of(key) for key in ("relu", "bias+gelu", "sigmoid")]
    ['train', 'train', 'validation']
    """
    bucket = int(hashlib.sha256(f"drkernel split {key}".encode()).hexdigest(), 16) % 10
    return {8: "validation", 9: "test"}.get(bucket, "train")
