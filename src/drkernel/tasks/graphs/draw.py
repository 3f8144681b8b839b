"""Seeded drawing of graphs."""

from __future__ import annotations

import random

from drkernel.tasks.graphs.dims import as_dim
from drkernel.tasks.graphs.graph import Builder, Graph


def example(rng: random.Random) -> Graph:
    """A convolution, a parameter per channel, an activation, a pool."""
    build = Builder()
    sizes = [("batch", 128, 2), ("channels", 16, 3), ("height", 64, 11), ("width", 64, 13)]
    x = build.input("x", [build.size(*size) for size in sizes])
    x = build.node("conv2d", x, out_channels=build.size("out_channels", 32, 6), kernel_size=3, padding=1)
    kept = x
    x = build.node("batch_norm2d", x)
    x = build.node("gelu", x)
    x = build.node("add", x, kept)
    x = build.node("add_parameter", x, shape=(build.shape(x)[1], as_dim(1), as_dim(1)), init="randn")
    return build.graph(build.node("max_pool2d", x, kernel_size=2, stride=rng.choice((1, 2))))
