"""Inputs of random shapes: sizes as people publish them, and small ones for the simulated device.

Small sizes are few elements per dimension, odd ones among them, so that masks matter. Small channels are even, so that
groups divide them.
"""

from __future__ import annotations

import random

from drkernel.tasks.generators.graphs.dims import Dim
from drkernel.tasks.generators.graphs.graph import Builder
from drkernel.tasks.generators.graphs.nodes import Distribution

BATCHES = (16, 32, 64, 128)
CHANNELS = (8, 16, 32, 64, 96, 128, 256)
WIDE = (256, 512, 768, 1024, 1536, 2048, 4096, 8192, 16384)
PIXELS = (32, 64, 96, 128, 224, 256, 512)
LENGTHS = (128, 256, 512, 1000, 1024, 2048, 4096)
VOXELS = (16, 24, 32, 48, 64)
_ROLES: dict[int, tuple[tuple[str, ...], ...]] = {
    2: (("batch", "features"), ("rows", "cols"), ("batch", "features")),
    3: (("batch", "seq", "features"), ("batch", "dim1", "dim2"), ("batch", "channels", "length")),
    1: (("length",), ("features",)),
    4: (
        *[("batch", "channels", "height", "width")] * 2,
        ("batch", "features", "dim1", "dim2"),
        ("batch", "heads", "seq", "head_dim"),
    ),
    5: (*[("batch", "channels", "depth", "height", "width")] * 2, ("batch", "features", "dim1", "dim2", "dim3")),
}
"""Names of the dimensions, by rank."""
_FULL: dict[str, tuple[int, ...]] = {
    "batch": (16, 32, 64, 128, 256, 512, 1024, 4096),
    "features": (256, 512, 768, 1024, 2048, 4096, 8192, 16384, 32768, 65536),
    "rows": (1024, 2048, 4096, 8192, 16384),
    "cols": (512, 1024, 2048, 4096, 8192, 16384, 32768),
    "seq": LENGTHS,
    "dim1": (128, 256, 512, 1024, 2048, 4096),
    "dim2": (127, 255, 512, 1023, 1024, 2048, 4095),
    "channels": CHANNELS,
    "length": (1024, 4096, 16384, 65536),
    "height": PIXELS,
    "width": PIXELS,
    "depth": VOXELS,
    "heads": (4, 8, 12, 16, 32),
    "head_dim": (32, 64, 80, 128),
    "dim3": (8, 16, 33, 64),
}
_FULL_OF_RANK: dict[int, dict[str, tuple[int, ...]]] = {
    1: {"length": (2**24, 2**25, 20000000), "features": (2**24, 2**25, 30000000)},
    4: {"features": (16, 32, 64, 96, 128), "dim1": PIXELS, "dim2": PIXELS},
    5: {"features": (4, 8, 16, 32), "dim1": VOXELS, "dim2": VOXELS},
}
_EVEN = ("channels", "heads")
_SMALL: dict[int, dict[str, tuple[int, ...]]] = {
    2: {"batch": (5, 7, 9), "features": (33, 70, 96, 130), "rows": (5, 7, 9), "cols": (33, 70, 130)},
    3: {
        "batch": (2, 3),
        "seq": (7, 9),
        "features": (16, 33, 40),
        "dim1": (7, 9, 12),
        "dim2": (17, 20, 33),
        "channels": (4, 6, 8),
        "length": (19, 24, 33),
    },
    1: {"length": (330, 700), "features": (300, 515)},
    4: {
        "batch": (2, 3, 4),
        "channels": (4, 6, 8),
        "height": (9, 10, 12),
        "width": (9, 11, 13),
        "features": (4, 6, 8),
        "dim1": (7, 9, 12),
        "dim2": (9, 10, 13),
        "heads": (2, 4),
        "seq": (7, 9, 12),
        "head_dim": (8, 11, 16),
    },
    5: {
        "batch": (2,),
        "channels": (4,),
        "depth": (6, 7),
        "height": (6, 7),
        "width": (7, 8),
        "features": (4, 6),
        "dim1": (5, 6),
        "dim2": (6, 7),
        "dim3": (7, 8),
    },
}
_ODD = 0.3
"""The share of sizes that are no usual ones."""
LEAST, MOST = 2**24, 2**28
"""Elements of an input that bandwidth decides on."""


def odd_size(rng: random.Random, size: int) -> int:
    """A published size, or one near it that is no power of two."""
    if rng.random() > _ODD or size < 16:
        return size
    near = int(size * rng.uniform(0.7, 1.3))
    hundreds = 10 ** (len(str(near)) - 1)
    return rng.choice(
        (size - 1, size + rng.randrange(1, 16), near, near // 8 * 8, near // hundreds * hundreds, 3 * size // 4)
    )


def shape_of(build: Builder, rng: random.Random, rank: int, least: int = LEAST, most: int = MOST) -> tuple[Dim, ...]:
    """A shape of this rank with new sizes, of `least` to `most` elements as published."""
    while True:
        roles = rng.choice(_ROLES[rank])
        full = [rng.choice(_FULL_OF_RANK.get(rank, {}).get(role, _FULL[role])) for role in roles]
        full = [size if role in _EVEN else odd_size(rng, size) for role, size in zip(roles, full, strict=True)]
        if roles[-2:] == ("height", "width") and rng.random() < 0.6:
            full[-1] = full[-2]
        total = 1
        for size in full:
            total *= size
        if least <= total <= most:
            break
    return tuple(build.size(role, size, rng.choice(_SMALL[rank][role])) for role, size in zip(roles, full, strict=True))


def random_input(
    build: Builder,
    rng: random.Random,
    rank: int,
    distribution: Distribution = "randn",
    least: int = LEAST,
    most: int = MOST,
) -> str:
    """A new first input of this rank."""
    return build.input("x", shape_of(build, rng, rank, least, most), distribution)


def images(build: Builder, rng: random.Random, rank: int, least_small: int = 0) -> tuple[Dim, ...]:
    """The shape [batch, channels, spatial...] of what a convolution takes."""
    batch = build.size("batch", odd_size(rng, rng.choice(BATCHES)), 2)
    channels = rng.choice(((3, 3), (8, 4), (16, 4), (32, 6), (64, 8), (64, 4), (128, 8)))
    places = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}[rank]
    full = {1: (512, 1024, 4096, 16384, 65536), 2: (32, 64, 128, 256, 224), 3: (16, 16, 24, 32, 32, 48, 64)}[rank]
    small = {1: (17, 20, 25), 2: (9, 10, 11, 12), 3: (6, 7, 8)}[rank]
    square, sizes = rng.choice(full), []
    for place in places:
        other = odd_size(rng, rng.choice(full)) if rng.random() < 0.3 else square
        sizes.append(build.size(place, other, max(rng.choice(small), least_small)))
    return (batch, build.size("channels", *channels), *sizes)
