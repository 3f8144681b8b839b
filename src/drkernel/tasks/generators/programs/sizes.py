"""Sizes of free programs: as published, and small ones for the simulated device."""

from __future__ import annotations

import random
from math import prod

from drkernel.tasks.generators.graphs.sizes import odd_size

_FULL: dict[str, tuple[int, ...]] = {
    "batch": (2, 4, 8, 16, 32, 48, 64, 96, 128, 256),
    "rows": (256, 512, 1024, 1536, 2048, 3072, 4096, 5120, 8192, 16384),
    "channels": (3, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256),
    "side": (7, 14, 16, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 192, 224, 256),
    "voxels": (6, 8, 12, 16, 20, 24, 32, 48),
    "length": (64, 128, 500, 1024, 2048, 4096, 8192, 16000, 16384, 65536),
    "seq": (32, 48, 49, 64, 77, 96, 128, 196, 197, 256, 384, 512, 1024, 2048),
    "features": (48, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 3072, 4096, 8192),
    "hidden": (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1280, 2048, 3072, 4096),
    "heads": (2, 4, 6, 8, 12, 16),
    "head_dim": (16, 32, 48, 64, 80, 96, 128),
    "classes": (2, 5, 10, 17, 21, 40, 100, 200, 1000),
    "vocab": (1000, 8000, 16000, 30000, 32000, 50000),
}
_SMALL: dict[str, tuple[int, ...]] = {
    "batch": (2, 3),
    "rows": (5, 6, 7, 9),
    "channels": (4, 8),
    "side": (8, 9, 10, 12),
    "voxels": (6, 8),
    "length": (16, 19, 24, 32),
    "seq": (6, 7, 8, 9, 12),
    "features": (16, 24, 32, 40),
    "hidden": (8, 12, 16, 20, 24),
    "heads": (2,),
    "head_dim": (8, 16),
    "classes": (2, 5, 10),
    "vocab": (30, 50),
}
KINDS: dict[str, tuple[str, ...]] = {
    "images": ("batch", "channels", "side", "side"),
    "signals": ("batch", "channels", "length"),
    "volumes": ("batch", "channels", "voxels", "voxels", "voxels"),
    "tokens": ("batch", "seq", "features"),
    "vectors": ("rows", "features"),
    "heads": ("batch", "heads", "seq", "head_dim"),
}
"""The dimensions of inputs."""
_KEPT = ("heads", "head_dim", "channels", "batch", "classes", "vocab")
"""Roles whose sizes are usual ones."""
LEAST, MOST = 2**15, 2**27
"""Elements of a first input."""


def drawn(rng: random.Random, role: str) -> tuple[int, int]:
    """A size as published, and its small value."""
    full = rng.choice(_FULL[role])
    if role == "channels" and full in (3, 12):
        return full, full if full == 3 else 4
    return full if role in _KEPT else odd_size(rng, full), rng.choice(_SMALL[role])


def shape_of(rng: random.Random, kind: str) -> list[tuple[str, int, int]]:
    """(role, published, small) of each dimension of an input; images are square mostly."""
    while True:
        found = [(role, *drawn(rng, role)) for role in KINDS[kind]]
        if kind in ("images", "volumes") and rng.random() < 0.7:
            found[3:] = [found[2]] * len(found[3:])
        if LEAST <= prod(full for _, full, _ in found) <= MOST:
            return found
