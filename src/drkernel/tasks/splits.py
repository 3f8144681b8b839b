"""Which split a key belongs to, on every machine and for ever."""

from __future__ import annotations

import hashlib

SPLITS = ("train", "validation", "test")


def split_of(key: str) -> str:
    """80 % train, 10 % validation, 10 % test, by hash.

    >>> [split_of(key) for key in ("relu", "bias+gelu", "sigmoid")]
    ['train', 'train', 'validation']
    """
    bucket = int(hashlib.sha256(f"drkernel split {key}".encode()).hexdigest(), 16) % 10
    return {8: "validation", 9: "test"}.get(bucket, "train")
