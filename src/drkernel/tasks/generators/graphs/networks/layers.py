"""Inputs and layers that networks are put together from."""

from __future__ import annotations

import random
from typing import Any

from drkernel.tasks.generators.graphs.dims import Dim, as_dim
from drkernel.tasks.generators.graphs.graph import Builder

ACTIVATIONS = ("relu", "relu", "gelu", "silu", "leaky_relu", "tanh", "elu", "mish", "hardswish")
_SLOPES = {"leaky_relu": {"negative_slope": 0.1}, "elu": {"alpha": 1.0}}
CHANNELS = ((16, 4), (32, 8), (64, 8), (128, 8))
WIDTHS = ((256, 24), (512, 32), (1024, 40), (2048, 48))


def activation(build: Builder, rng: random.Random, value: str, name: str = "") -> str:
    """An activation, drawn where no name is given."""
    name = name or rng.choice(ACTIVATIONS)
    return build.node(name, value, **_SLOPES.get(name, {}))


def images(build: Builder, rng: random.Random, channels: tuple[int, int] = (0, 0), even: bool = False) -> str:
    """A batch of images; of even height and width where two halvings have to fit."""
    batch, side = rng.choice((8, 10, 16, 32, 64)), rng.choice((32, 56, 64, 112, 128, 224))
    small = (8, 8, 12) if even else (8, 9, 10, 11)
    shape = [
        build.size("batch", batch, 2),
        build.size("channels", *(channels if channels[0] else rng.choice(CHANNELS))),
        build.size("height", side, rng.choice(small)),
        build.size("width", side, rng.choice(small)),
    ]
    return build.input("x", shape)


def tokens(build: Builder, rng: random.Random) -> tuple[str, Dim]:
    """A batch of sequences, and their width."""
    batch = build.size("batch", rng.choice((4, 8, 16, 32)), 2)
    seq = build.size("seq", rng.choice((128, 197, 256, 512, 1024)), rng.choice((5, 7, 9)))
    width = build.size("features", *rng.choice(((256, 16), (384, 24), (512, 32), (768, 24), (1024, 32))))
    return build.input("x", (batch, seq, width)), width


def tokens_of_heads(build: Builder, rng: random.Random) -> tuple[str, Dim]:
    """A batch of sequences whose width is `heads * head_dim`, and that width."""
    batch = build.size("batch", rng.choice((4, 8, 16)), 2)
    seq = build.size("seq", rng.choice((128, 256, 512, 1024)), rng.choice((5, 7)))
    if rng.random() < 0.4:  # a number that the simulated device keeps
        heads: Dim = as_dim(rng.choice((2, 4, 8)))
    else:
        heads = build.size("heads", *rng.choice(((4, 2), (8, 2), (12, 3), (16, 2))))
    head_dim = build.size("head_dim", *rng.choice(((32, 8), (64, 8), (128, 16))))
    width = heads * head_dim
    return build.input("x", (batch, seq, width)), width


def rows(build: Builder, rng: random.Random) -> str:
    """A batch of vectors."""
    batch = build.size("batch", rng.choice((128, 256, 512, 1024, 4096)), rng.choice((5, 9)))
    return build.input("x", (batch, build.size("in_features", *rng.choice(WIDTHS))))


def conv(build: Builder, value: str, out: Dim, kernel: int = 3, bias: bool = False, **more: Any) -> str:
    """A convolution that keeps height and width, unless it has a stride."""
    return build.node("conv2d", value, out_channels=out, kernel_size=kernel, padding=kernel // 2, bias=bias, **more)


def conv_norm(build: Builder, value: str, out: Dim, kernel: int = 3, **more: Any) -> str:
    """The same without a bias, and a batch norm."""
    return build.node("batch_norm2d", conv(build, value, out, kernel, **more))


def classes(build: Builder, rng: random.Random, value: str) -> str:
    """A pool of all places, and a layer."""
    value = build.node("flatten", build.node("adaptive_avg_pool2d", value, output_size=1), contiguous=True)
    return build.node("linear", value, out_features=build.size("classes", rng.choice((10, 100, 1000)), 10))


def number_of_heads(build: Builder, width: Dim) -> Dim:
    """Of tokens of this width."""
    return build.sizes.get("heads") or as_dim(width.full // build.sizes["head_dim"].full)


def heads_of(build: Builder, value: str, source: str, width: Dim, bias: bool, causal: bool, fused: bool = False) -> str:
    """Attention of several heads, queries from `value`, keys and values from `source`, and their projection.

    `fused`: one layer makes all three.
    """
    heads, head_dim = number_of_heads(build, width), build.sizes["head_dim"]
    if fused:
        whole = build.node("linear", value, out_features=3 * width, bias=bias)
        parts = [build.node("chunk", whole, chunks=3, dim=2, index=index) for index in range(3)]
    else:
        parts = [build.node("linear", part, out_features=width, bias=bias) for part in (value, source, source)]
    split = [build.node("split_heads", part, heads=heads, head_dim=head_dim) for part in parts]
    value = build.node("join_heads", build.node("attention", *split, is_causal=causal))
    return build.node("linear", value, out_features=width, bias=bias)
