"""Networks of more layers: several blocks in a row, encoders and decoders, transformers."""

from __future__ import annotations

import random
from collections.abc import Callable

from drkernel.tasks.generators.graphs.graph import Builder
from drkernel.tasks.generators.graphs.networks import layers


def transformer_block(build: Builder, rng: random.Random) -> str:
    """Attention and two layers, each with a norm before or behind it, and the input."""
    x, width = layers.tokens_of_heads(build, rng)
    hidden = build.size("hidden", *rng.choice(((1024, 24), (2048, 40))))
    first, bias = rng.random() < 0.6, rng.random() < 0.7
    norm = lambda value: build.node("layer_norm", value, eps=1e-5)
    inner = norm(x) if first else x
    value = build.node(
        "add", x, layers.heads_of(build, inner, inner, width, bias, rng.random() < 0.5, rng.random() < 0.5)
    )
    value = value if first else norm(value)
    inner = build.node("linear", norm(value) if first else value, out_features=hidden, bias=bias)
    inner = build.node("linear", layers.activation(build, rng, inner), out_features=width, bias=bias)
    value = build.node("add", value, inner)
    return value if first else norm(value)


def cross_attention(build: Builder, rng: random.Random) -> str:
    """Attention of one sequence to another."""
    x, width = layers.tokens_of_heads(build, rng)
    length = build.size("length", rng.choice((77, 128, 256)), rng.choice((4, 6)))
    source = build.input("context", (build.sizes["batch"], length, width))
    value = layers.heads_of(build, x, source, width, rng.random() < 0.5, False)
    return build.node("add", x, value) if rng.random() < 0.5 else value


def linear_attention(build: Builder, rng: random.Random) -> str:
    """Attention without a softmax over keys: products in another order."""
    x, width = layers.tokens(build, rng)
    q, k, v = (build.node("linear", x, out_features=width, bias=False) for _ in range(3))
    name = rng.choice(("elu", "relu", "softplus"))
    keys = layers.activation(build, rng, k, name)
    state = build.node("bmm", keys, v, transpose_x=True)
    value = build.node("bmm", layers.activation(build, rng, q, name), state)
    return build.node("linear", build.node("scale", value, value=0.01), out_features=width)


def patches(build: Builder, rng: random.Random) -> str:
    """An image in patches, each a token; then a norm and layers."""
    side = rng.choice((8, 14, 16))
    batch, size = build.size("batch", rng.choice((8, 16, 32, 64)), 2), 224 if side != 8 else 128
    shape = (
        batch,
        build.size("channels", 3, 3),
        build.size("height", size, 2 * side),
        build.size("width", size, 3 * side),
    )
    width = build.size("features", *rng.choice(((192, 12), (384, 16), (768, 16))))
    value = build.node("conv2d", build.input("x", shape), out_channels=width, kernel_size=side, stride=side)
    value = build.node("transpose", build.node("flatten", value, start_dim=2), dim0=1, dim1=2)
    value = build.node("layer_norm", value)
    hidden = build.size("hidden", *rng.choice(((768, 20), (1536, 24))))
    value = layers.activation(build, rng, build.node("linear", value, out_features=hidden))
    return build.node("linear", value, out_features=width)


def autoencoder(build: Builder, rng: random.Random) -> str:
    """Layers that become narrower, then wide again."""
    value, name = layers.rows(build, rng), rng.choice(layers.ACTIVATIONS)
    wide = build.sizes["in_features"]
    sizes = [
        build.size("hidden1", *rng.choice(((512, 24), (1024, 32)))),
        build.size("hidden2", *rng.choice(((64, 8), (128, 12)))),
    ]
    for width in (*sizes, sizes[0]):
        value = layers.activation(build, rng, build.node("linear", value, out_features=width), name)
    value = build.node("linear", value, out_features=wide)
    return build.node("sigmoid", value) if rng.random() < 0.5 else value


def deep_mlp(build: Builder, rng: random.Random) -> str:
    """Many layers of one width."""
    value, name = layers.rows(build, rng), rng.choice(layers.ACTIVATIONS)
    width, kept = build.size("hidden", *rng.choice(((512, 24), (1024, 32)))), rng.random() < 0.4
    value = layers.activation(build, rng, build.node("linear", value, out_features=width), name)
    for _ in range(rng.choice((2, 3, 4))):
        new = layers.activation(build, rng, build.node("linear", value, out_features=width), name)
        value = build.node("add", value, new) if kept else new
    return build.node("linear", value, out_features=build.size("classes", rng.choice((10, 100, 1000)), 10))


def separable_stack(build: Builder, rng: random.Random) -> str:
    """Convolutions of each channel, then of each place, twice."""
    value, name = layers.images(build, rng, rng.choice(((16, 4), (32, 4)))), rng.choice(("relu", "relu6", "hardswish"))
    for block in range(2):
        channels = build.shape(value)[1]
        value = layers.conv_norm(build, value, channels, 3, groups=channels, stride=rng.choice((1, 2)) if block else 1)
        value = layers.activation(build, rng, value, name)
        value = layers.conv_norm(build, value, build.size(f"channels{block + 1}", *rng.choice(((32, 6), (64, 8)))), 1)
        value = layers.activation(build, rng, value, name)
    return value


def residual_stack(build: Builder, rng: random.Random) -> str:
    """A stem, two residual blocks, a pool and a layer."""
    value, name = layers.images(build, rng, (3, 3)), rng.choice(("relu", "relu", "silu"))
    channels = build.size("out_channels", *rng.choice(((32, 4), (64, 4))))
    value = layers.activation(build, rng, layers.conv_norm(build, value, channels), name)
    for _ in range(2):
        new = layers.activation(build, rng, layers.conv_norm(build, value, channels), name)
        new = layers.conv_norm(build, new, channels)
        value = layers.activation(build, rng, build.node("add", new, value), name)
    return layers.classes(build, rng, value)


def down_and_up(build: Builder, rng: random.Random) -> str:
    """Down by a pool, up by a transposed convolution, joined with what came before."""
    x, name = layers.images(build, rng, rng.choice(((3, 3), (16, 4))), even=True), rng.choice(("relu", "leaky_relu"))
    first, second = (
        build.size("channels1", *rng.choice(((16, 4), (32, 4)))),
        build.size("channels2", *rng.choice(((32, 6), (64, 6)))),
    )
    wide = layers.activation(build, rng, layers.conv_norm(build, x, first), name)
    value = build.node("max_pool2d", wide, kernel_size=2, stride=2)
    value = layers.activation(build, rng, layers.conv_norm(build, value, second), name)
    value = build.node("conv_transpose2d", value, out_channels=first, kernel_size=2, stride=2)
    if rng.random() < 0.4:
        return build.node("conv2d", build.node("add", value, wide), out_channels=first, kernel_size=1)
    return layers.conv(build, build.node("cat", value, wide, dim=1), first, 3, bias=True)


def temporal(build: Builder, rng: random.Random) -> str:
    """Convolutions along a sequence, and the input."""
    batch, length = (
        build.size("batch", rng.choice((16, 32, 64)), 2),
        build.size("length", rng.choice((512, 1024, 4096)), 19),
    )
    channels = build.size("channels", *rng.choice(((32, 4), (64, 6), (128, 8))))
    x, name = build.input("x", (batch, channels, length)), rng.choice(layers.ACTIVATIONS)
    value = x
    for dilation in (1, rng.choice((1, 2, 4))):
        value = build.node(
            "conv1d", value, out_channels=channels, kernel_size=3, padding=dilation, dilation=dilation, bias=True
        )
        value = layers.activation(build, rng, build.node("batch_norm1d", value), name)
    return build.node("add", value, x)


def volume(build: Builder, rng: random.Random) -> str:
    """Convolutions of volumes, a pool, a layer."""
    batch, side = build.size("batch", rng.choice((4, 8, 16)), 2), rng.choice((16, 24, 32))
    places = [build.size(name, side, rng.choice((6, 7))) for name in ("depth", "height", "width")]
    value = build.input("x", (batch, build.size("channels", *rng.choice(((1, 1), (3, 3), (8, 4)))), *places))
    name = rng.choice(("relu", "leaky_relu", "silu"))
    for block in range(2):
        out = build.size(f"channels{block + 1}", *rng.choice(((16, 4), (32, 4))))
        value = build.node("conv3d", value, out_channels=out, kernel_size=3, padding=1)
        value = layers.activation(build, rng, build.node("batch_norm3d", value), name)
    value = build.node("flatten", build.node("adaptive_avg_pool3d", value, output_size=1), contiguous=True)
    return build.node("linear", value, out_features=build.size("classes", rng.choice((10, 100, 400)), 10))


DEEP: dict[str, Callable[[Builder, random.Random], str]] = {
    function.__name__: function
    for function in (
        transformer_block,
        cross_attention,
        linear_attention,
        patches,
        autoencoder,
        deep_mlp,
        separable_stack,
        residual_stack,
        down_and_up,
        temporal,
        volume,
    )
}
