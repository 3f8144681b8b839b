"""Networks of many layers, and those with modules that answers leave in PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable

from drkernel.tasks.generators.graphs.dims import Dim, as_dim
from drkernel.tasks.generators.graphs.graph import Builder
from drkernel.tasks.generators.graphs.networks import layers


def _images(build: Builder, rng: random.Random, channels: tuple[int, int], even: bool = False) -> str:
    """Images that are small on the simulated device, so that many layers fit."""
    side = rng.choice((32, 56, 64, 112, 128, 224))
    small = rng.choice((8,) if even else (7, 8))
    places = [build.size("height", side, small), build.size("width", side, small)]
    return build.input(
        "x", (build.size("batch", rng.choice((8, 10, 16, 32, 64)), 2), build.size("channels", *channels), *places)
    )


def plain_stack(build: Builder, rng: random.Random) -> str:
    """Many convolutions with activations, pools between them, layers at the end."""
    value, name = _images(build, rng, (3, 3), even=True), rng.choice(("relu", "relu", "relu", "leaky_relu", "elu"))
    normed, blocks = rng.random() < 0.4, rng.choice((1, 2, 2))
    for block in range(blocks):
        out = build.size(f"channels{block + 1}", *rng.choice(((32, 4), (64, 4), (64, 6), (128, 6))))
        for _ in range(rng.choice((1, 2, 2, 3, 4))):
            value = layers.conv(build, value, out, rng.choice((3, 3, 3, 5)), bias=not normed)
            value = build.node("batch_norm2d", value) if normed else value
            value = layers.activation(build, rng, value, name)
        value = build.node("max_pool2d", value, kernel_size=2, stride=2)
    if rng.random() < 0.4:
        return layers.classes(build, rng, value)
    value = build.node("flatten", value, contiguous=True)
    for place in range(rng.choice((0, 1, 2))):
        width = build.size(f"hidden{place + 1}", *rng.choice(((256, 16), (512, 20), (1024, 24))))
        value = layers.activation(build, rng, build.node("linear", value, out_features=width), name)
        value = build.node("dropout", value, p=0.5) if rng.random() < 0.3 else value
    return build.node("linear", value, out_features=build.size("classes", rng.choice((10, 100, 1000)), 10))


def _residual(build: Builder, rng: random.Random, x: str, out: Dim, stride: int, name: str) -> str:
    value = layers.activation(build, rng, layers.conv_norm(build, x, out, stride=stride), name)
    value, kept = layers.conv_norm(build, value, out), x
    if stride != 1 or build.shape(x)[1] is not out:
        kept = build.node(
            "batch_norm2d", build.node("conv2d", x, out_channels=out, kernel_size=1, stride=stride, bias=False)
        )
    return layers.activation(build, rng, build.node("add", value, kept), name)


def residual_network(build: Builder, rng: random.Random) -> str:
    """A stem and stages of residual blocks, each with more channels than the one before."""
    value, name = _images(build, rng, (3, 3)), rng.choice(("relu", "relu", "relu", "silu"))
    first = build.size("channels1", *rng.choice(((32, 4), (64, 4))))
    value = layers.activation(build, rng, layers.conv_norm(build, value, first, rng.choice((3, 7))), name)
    if rng.random() < 0.4:
        value = build.node("max_pool2d", value, kernel_size=3, stride=2, padding=1)
    for _ in range(rng.choice((1, 1, 2))):
        value = _residual(build, rng, value, first, 1, name)
    for stage in range(rng.choice((1, 1, 2))):
        out = build.size(f"channels{stage + 2}", *rng.choice(((64, 6), (128, 6))))
        value = _residual(build, rng, value, out, 2, name)
    return layers.classes(build, rng, value) if rng.random() < 0.7 else value


def bottleneck_network(build: Builder, rng: random.Random) -> str:
    """Residual blocks that are narrow inside."""
    value, name = _images(build, rng, rng.choice(((64, 8), (128, 8)))), rng.choice(("relu", "silu"))
    wide = build.shape(value)[1]
    narrow = build.size("hidden", *rng.choice(((16, 4), (32, 4))))
    for _ in range(rng.choice((2, 2, 3))):
        new = layers.activation(build, rng, layers.conv_norm(build, value, narrow, 1), name)
        new = layers.activation(build, rng, layers.conv_norm(build, new, narrow, 3), name)
        new = layers.conv_norm(build, new, wide, 1)
        value = layers.activation(build, rng, build.node("add", new, value), name)
    return layers.classes(build, rng, value) if rng.random() < 0.5 else value


def long_mlp(build: Builder, rng: random.Random) -> str:
    """Many layers, of one width or of several."""
    value, name = layers.rows(build, rng), rng.choice(layers.ACTIVATIONS)
    sizes = [build.size(f"hidden{k}", *rng.choice(((256, 16), (512, 20), (1024, 24)))) for k in (1, 2)]
    extra = rng.choice(("", "", "", "layer_norm", "batch_norm1d", "dropout"))
    for place in range(rng.choice((3, 4, 5, 6, 8))):
        value = build.node("linear", value, out_features=sizes[place % 2])
        if extra in ("layer_norm", "batch_norm1d"):
            value = build.node(extra, value)
        value = layers.activation(build, rng, value, name)
        value = build.node("dropout", value, p=0.1) if extra == "dropout" else value
    return build.node("linear", value, out_features=build.size("classes", rng.choice((10, 128, 1000)), 10))


def inception(build: Builder, rng: random.Random) -> str:
    """Three or four branches, one of them behind a pool, joined at once."""
    x, act = _images(build, rng, rng.choice(((64, 4), (96, 6), (192, 6)))), rng.random() < 0.7
    sizes = [build.size(f"channels{k}", *rng.choice(((16, 3), (32, 4), (64, 4)))) for k in (1, 2, 3)]
    after = lambda value: build.node("relu", value) if act else value
    parts = [after(layers.conv(build, x, sizes[0], 1, bias=True))]
    for kernel in rng.choice(((3,), (3, 5), (3, 5))):
        inner = after(layers.conv(build, x, sizes[1], 1, bias=True))
        parts.append(after(layers.conv(build, inner, sizes[2], kernel, bias=True)))
    pooled = build.node(rng.choice(("max_pool2d", "avg_pool2d")), x, kernel_size=3, stride=1, padding=1)
    parts.append(after(layers.conv(build, pooled, sizes[1], 1, bias=True)))
    return build.node(f"cat{len(parts)}", *parts, dim=1)


def squeeze_and_expand(build: Builder, rng: random.Random) -> str:
    """Modules that squeeze channels and expand them by two convolutions side by side."""
    value = _images(build, rng, rng.choice(((64, 6), (96, 6))))
    for place in range(rng.choice((1, 2, 2))):
        narrow = build.size(f"squeeze{place + 1}", *rng.choice(((16, 3), (32, 4))))
        wide = build.size(f"expand{place + 1}", *rng.choice(((64, 4), (64, 6))))
        inner = build.node("relu", layers.conv(build, value, narrow, 1, bias=True))
        parts = [build.node("relu", layers.conv(build, inner, wide, k, bias=True)) for k in (1, 3)]
        value = build.node("cat", *parts, dim=1)
    return layers.classes(build, rng, value) if rng.random() < 0.4 else value


def mobile_network(build: Builder, rng: random.Random) -> str:
    """Inverted residual blocks, with weights for channels or without."""
    value = _images(build, rng, rng.choice(((16, 4), (24, 4))))
    width, name = build.size("hidden", *rng.choice(((64, 6), (96, 8)))), rng.choice(("relu6", "hardswish", "silu"))
    gated = rng.random() < 0.5
    for _ in range(rng.choice((1, 2))):
        new = layers.activation(build, rng, layers.conv_norm(build, value, width, 1), name)
        new = layers.conv(build, new, width, rng.choice((3, 5)), groups=width)
        new = layers.activation(build, rng, build.node("batch_norm2d", new), name)
        if gated:
            gate = build.node("adaptive_avg_pool2d", new, output_size=1)
            narrow = build.sizes.get("squeeze") or build.size("squeeze", 16, 3)
            gate = build.node("relu", build.node("conv2d", gate, out_channels=narrow, kernel_size=1))
            gate = build.node("conv2d", gate, out_channels=width, kernel_size=1)
            new = build.node("multiply", new, build.node(rng.choice(("sigmoid", "hardsigmoid")), gate))
        value = build.node("add", layers.conv_norm(build, new, build.shape(value)[1], 1), value)
    return value


def shuffled_units(build: Builder, rng: random.Random) -> str:
    """Half of the channels goes through convolutions; then both halves are joined and shuffled."""
    x = _images(build, rng, rng.choice(((64, 8), (116, 8))))
    kept, value = (build.node("chunk", x, chunks=2, dim=1, index=index) for index in (0, 1))
    half = build.shape(value)[1]
    value = build.node("relu", layers.conv_norm(build, value, half, 1))
    value = build.node("batch_norm2d", layers.conv(build, value, half, 3, groups=half))
    value = build.node("relu", layers.conv_norm(build, value, half, 1))
    return build.node("channel_shuffle", build.node("cat", kept, value, dim=1), groups=2)


def convnext_block(build: Builder, rng: random.Random) -> str:
    """A convolution of each channel, then a norm and layers with channels last, a weight, and the input."""
    x = _images(build, rng, rng.choice(((64, 8), (96, 8))))
    channels = build.shape(x)[1]
    value = layers.conv(build, x, channels, rng.choice((5, 7)), bias=True, groups=channels)
    value = build.node("layer_norm", build.node("permute", value, order=(0, 2, 3, 1)), eps=rng.choice((1e-5, 1e-6)))
    value = build.node("gelu", build.node("linear", value, out_features=4 * channels))
    value = build.node("linear", value, out_features=channels)
    if rng.random() < 0.6:
        value = build.node("multiply_parameter", value, shape=(channels,), init="ones")
    return build.node("add", x, build.node("permute", value, order=(0, 3, 1, 2)))


def encoder(build: Builder, rng: random.Random) -> str:
    """Two transformer blocks, with attention from PyTorch's module or written out."""
    x, width = layers.tokens_of_heads(build, rng)
    hidden, name = build.size("hidden", *rng.choice(((1024, 24), (2048, 32)))), rng.choice(("gelu", "relu"))
    whole, value, heads = rng.random() < 0.5, x, layers.number_of_heads(build, width)
    for _ in range(rng.choice((1, 2))):
        inner = build.node("layer_norm", value)
        if whole:
            new = build.node("multihead_attention", inner, inner, inner, num_heads=heads, batch_first=True)
        else:
            new = layers.heads_of(build, inner, inner, width, True, False, rng.random() < 0.5)
        value = build.node("add", value, new)
        inner = build.node("linear", build.node("layer_norm", value), out_features=hidden)
        inner = build.node("linear", layers.activation(build, rng, inner, name), out_features=width)
        value = build.node("add", value, inner)
    return build.node("mean", value, dims=(1,)) if rng.random() < 0.3 else value


def recurrent_network(build: Builder, rng: random.Random) -> str:
    """A recurrent module, layers before or behind it."""
    batch, seq = build.size("batch", rng.choice((16, 32, 64)), 2), build.size("seq", rng.choice((64, 128, 256)), 6)
    value = build.input("x", (batch, seq, build.size("features", *rng.choice(((128, 12), (256, 16))))))
    hidden = build.size("hidden", *rng.choice(((128, 8), (256, 12))))
    if rng.random() < 0.3:
        value = build.node("relu", build.node("linear", value, out_features=build.size("width", 256, 12)))
    value = build.node(
        rng.choice(("lstm", "gru")),
        value,
        hidden_size=hidden,
        num_layers=rng.choice((1, 2, 2)),
        batch_first=True,
        bidirectional=rng.random() < 0.4,
    )
    if rng.random() < 0.5:
        value = build.node("cut", value, dim=1, kind="last", number=1, index=":, -1")
    if rng.random() < 0.4:
        value = layers.activation(build, rng, build.node("layer_norm", value))
    return build.node("linear", value, out_features=build.size("classes", rng.choice((10, 45, 100)), 10))


def gated_convolution(build: Builder, rng: random.Random) -> str:
    """A convolution along a sequence that looks back alone, one half of whose channels gates the other."""
    batch, length = build.size("batch", rng.choice((16, 32)), 2), build.size("length", rng.choice((1024, 4096)), 19)
    channels = build.size("channels", *rng.choice(((32, 4), (64, 6))))
    x = build.input("x", (batch, channels, length))
    kernel, dilation = rng.choice((3, 5)), rng.choice((1, 2, 4))
    back, out = (kernel - 1) * dilation, 2 * channels
    if rng.random() < 0.5:
        value = build.node("pad_all", x, pad=(back, 0), mode="constant")
        value = build.node("conv1d", value, out_channels=out, kernel_size=kernel, dilation=dilation)
    else:
        value = build.node("conv1d", x, out_channels=out, kernel_size=kernel, dilation=dilation, padding=back)
        value = build.node("cut", value, dim=2, kind="front", number=back, index=f":, :, :-{back}")
    value = build.node("glu", value, dim=1)
    return build.node("add", value, x) if rng.random() < 0.6 else value


def raw_layers(build: Builder, rng: random.Random) -> str:
    """Layers whose weights are parameters of the module itself."""
    if rng.random() < 0.4:
        x = _images(build, rng, rng.choice(((16, 4), (32, 4))))
        out = build.size("out_channels", *rng.choice(((32, 4), (64, 6))))
        k = rng.choice((1, 3, 5))
        value = build.node(
            "conv2d_raw", x, out_channels=out, kernel_size=k, padding=k // 2, bias=rng.choice(("", "zeros"))
        )
        return layers.activation(build, rng, value)
    value = layers.rows(build, rng)
    for place in range(rng.choice((1, 2, 2))):
        width = build.size(f"hidden{place + 1}", *rng.choice(((512, 20), (1024, 24))))
        value = build.node("linear_raw", value, out_features=width, bias=rng.choice(("", "zeros", "randn")))
        value = layers.activation(build, rng, value)
    return value


def u_network(build: Builder, rng: random.Random) -> str:
    """Down twice, up twice, joined with what was there before."""
    x, name = _images(build, rng, rng.choice(((3, 3), (8, 4))), even=True), rng.choice(("relu", "leaky_relu"))
    first, second = build.size("channels1", 32, 4), build.size("channels2", 64, 4)
    bilinear = rng.random() < 0.4
    one = layers.activation(build, rng, layers.conv_norm(build, x, first), name)
    two = layers.conv_norm(build, build.node("max_pool2d", one, kernel_size=2, stride=2), second)
    two = layers.activation(build, rng, two, name)
    if bilinear:
        value = build.node("interpolate", two, scale_factor=2, mode="bilinear")
    else:
        value = build.node("conv_transpose2d", two, out_channels=first, kernel_size=2, stride=2)
    value = layers.activation(build, rng, layers.conv_norm(build, build.node("cat", value, one, dim=1), first), name)
    return build.node("conv2d", value, out_channels=as_dim(rng.choice((1, 3))), kernel_size=1)


STACKS: dict[str, Callable[[Builder, random.Random], str]] = {
    function.__name__: function
    for function in (
        plain_stack,
        residual_network,
        bottleneck_network,
        long_mlp,
        inception,
        squeeze_and_expand,
        mobile_network,
        shuffled_units,
        convnext_block,
        encoder,
        recurrent_network,
        gated_convolution,
        raw_layers,
        u_network,
    )
}
