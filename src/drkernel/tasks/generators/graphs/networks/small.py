"""Small networks: a few layers as people put them together."""

from __future__ import annotations

import random
from collections.abc import Callable

from drkernel.tasks.generators.graphs.dims import as_dim
from drkernel.tasks.generators.graphs.graph import Builder
from drkernel.tasks.generators.graphs.networks.layers import (
    ACTIVATIONS,
    CHANNELS,
    WIDTHS,
    activation,
    conv,
    conv_norm,
    heads_of,
    images,
    rows,
    tokens,
    tokens_of_heads,
)


def mlp(build: Builder, rng: random.Random) -> str:
    """Linear layers with activations between them."""
    value, name = rows(build, rng), rng.choice(ACTIVATIONS)
    extra = rng.choice(("", "", "dropout", "layer_norm", "batch_norm1d"))
    for layer in range(rng.choice((1, 2, 2, 3))):
        width = build.size(f"hidden{layer + 1}", *rng.choice(WIDTHS))
        value = build.node("linear", value, out_features=width)
        if extra in ("layer_norm", "batch_norm1d"):
            value = build.node(extra, value)
        value = activation(build, rng, value, name)
        if extra == "dropout":
            value = build.node("dropout", value, p=0.1)
    return build.node(
        "linear", value, out_features=build.size("out_features", *rng.choice(((10, 10), (128, 16), (1000, 20))))
    )


def residual_block(build: Builder, rng: random.Random) -> str:
    """Two convolutions and the input, which a third one may project."""
    x, name = images(build, rng), rng.choice(("relu", "relu", "leaky_relu", "gelu"))
    projected = rng.random() < 0.5
    stride = rng.choice((1, 2)) if projected else 1
    out = build.size("out_channels", *rng.choice(CHANNELS)) if projected else build.shape(x)[1]
    value = activation(build, rng, conv_norm(build, x, out, stride=stride), name)
    value = conv_norm(build, value, out)
    kept = build.node(
        "batch_norm2d", build.node("conv2d", x, out_channels=out, kernel_size=1, stride=stride, bias=False)
    )
    return activation(build, rng, build.node("add", value, kept), name)


def plain_residual(build: Builder, rng: random.Random) -> str:
    """Two convolutions and the input itself."""
    x, name = images(build, rng), rng.choice(("relu", "silu", "gelu"))
    channels = build.shape(x)[1]
    value = activation(build, rng, conv_norm(build, x, channels), name)
    return activation(build, rng, build.node("add", conv_norm(build, value, channels), x), name)


def bottleneck(build: Builder, rng: random.Random) -> str:
    """Narrow, convolve, widen, add."""
    x, name = images(build, rng, rng.choice(((64, 8), (128, 8), (256, 8)))), rng.choice(("relu", "relu", "silu"))
    width = build.size("hidden", *rng.choice(((16, 4), (32, 4), (64, 6))))
    value = activation(build, rng, conv_norm(build, x, width, 1), name)
    value = activation(build, rng, conv_norm(build, value, width, 3), name)
    value = conv_norm(build, value, build.shape(x)[1], 1)
    return activation(build, rng, build.node("add", value, x), name)


def inverted_residual(build: Builder, rng: random.Random) -> str:
    """Widen, convolve each channel, narrow, add."""
    x = images(build, rng, rng.choice(((16, 4), (24, 4), (32, 4))))
    width = build.size("hidden", *rng.choice(((96, 8), (144, 8), (192, 8))))
    name = rng.choice(("relu6", "relu6", "hardswish", "silu"))
    value = activation(build, rng, conv_norm(build, x, width, 1), name)
    value = conv(build, value, width, rng.choice((3, 5)), groups=width)
    value = activation(build, rng, build.node("batch_norm2d", value), name)
    return build.node("add", conv_norm(build, value, build.shape(x)[1], 1), x)


def squeeze_excite(build: Builder, rng: random.Random) -> str:
    """Channels weighted by a network of their means."""
    x = images(build, rng, rng.choice(((64, 8), (128, 12), (256, 16))))
    channels, value = build.shape(x)[1], x
    if rng.random() < 0.5:
        value = x = activation(build, rng, conv_norm(build, x, channels), "relu")
    width = build.size("hidden", *rng.choice(((8, 3), (16, 4), (32, 5))))
    gate = rng.choice(("sigmoid", "sigmoid", "hardsigmoid"))
    pooled = build.node("adaptive_avg_pool2d", value, output_size=1)
    if rng.random() < 0.5:
        value = build.node("conv2d", pooled, out_channels=width, kernel_size=1)
        value = build.node("conv2d", build.node("relu", value), out_channels=channels, kernel_size=1)
        return build.node("multiply", x, build.node(gate, value))
    value = build.node("relu", build.node("linear", build.node("flatten", pooled, contiguous=True), out_features=width))
    value = build.node(gate, build.node("linear", value, out_features=channels))
    value = build.node("unsqueeze", build.node("unsqueeze", value, dim=2), dim=3)
    return build.node("multiply", x, value)


def spatial_gate(build: Builder, rng: random.Random) -> str:
    """Places weighted by a convolution of their mean and maximum over channels."""
    x = images(build, rng)
    mean, most = (build.node(name, x, dims=(1,), keepdim=True) for name in ("mean", "max"))
    value = build.node("cat", mean, most, dim=1)
    value = build.node("conv2d", value, out_channels=as_dim(1), kernel_size=7, padding=3, bias=False)
    return build.node("multiply", x, build.node("sigmoid", value))


def feed_forward(build: Builder, rng: random.Random) -> str:
    """Norm, two layers, and the input."""
    x, width = tokens(build, rng)
    norm = rng.choice(("layer_norm", "rms_norm"))
    hidden = build.size("hidden", *rng.choice(((1024, 40), (2048, 48), (3072, 48))))
    value = build.node(norm, x, eps=1e-5)
    value = activation(
        build, rng, build.node("linear", value, out_features=hidden), rng.choice(("gelu", "relu", "gelu_tanh"))
    )
    return build.node("add", x, build.node("linear", value, out_features=width))


def gated_unit(build: Builder, rng: random.Random) -> str:
    """Two layers side by side, one of which gates the other; or one layer in two halves."""
    x, width = tokens(build, rng)
    hidden = build.size("hidden", *rng.choice(((1024, 24), (1376, 33), (2048, 40))))
    name, bias = rng.choice(("silu", "silu", "gelu", "sigmoid", "relu")), rng.random() < 0.3
    if rng.random() < 0.4:
        both = build.node("linear", x, out_features=2 * hidden, bias=bias)
        gate, value = (build.node("chunk", both, chunks=2, dim=2, index=index) for index in (0, 1))
    else:
        gate, value = (build.node("linear", x, out_features=hidden, bias=bias) for _ in range(2))
    value = build.node("multiply", activation(build, rng, gate, name), value)
    return build.node("linear", value, out_features=width, bias=bias)


def attention_block(build: Builder, rng: random.Random) -> str:
    """Attention of several heads, with projections."""
    x, width = tokens_of_heads(build, rng)
    normed = rng.random() < 0.5
    value = build.node("layer_norm", x, eps=1e-5) if normed else x
    value = heads_of(build, value, value, width, rng.random() < 0.5, rng.random() < 0.5, rng.random() < 0.5)
    return build.node("add", x, value) if normed else value


def plain_attention(build: Builder, rng: random.Random) -> str:
    """Attention of given queries, keys and values."""
    batch = build.size("batch", rng.choice((4, 8, 16, 32)), 2)
    heads = build.size("heads", rng.choice((8, 12, 16, 32)), 2)
    seq = build.size("seq", rng.choice((256, 512, 1024)), rng.choice((7, 9, 12)))
    width = build.size("head_dim", *rng.choice(((32, 8), (64, 16), (128, 16))))
    names = [build.input(name, (batch, heads, seq, width)) for name in ("q", "k", "v")]
    return build.node("attention", *names, is_causal=rng.random() < 0.5)


def one_head(build: Builder, rng: random.Random) -> str:
    """Attention of one head, with projections."""
    x, width = tokens(build, rng)
    parts = [build.node("linear", x, out_features=width, bias=False) for _ in range(3)]
    return build.node("attention", *parts, is_causal=rng.random() < 0.3)


def convnet(build: Builder, rng: random.Random) -> str:
    """Convolutions with pools, then linear layers."""
    value, name = images(build, rng, rng.choice(((1, 1), (3, 3)))), rng.choice(("relu", "relu", "tanh", "gelu"))
    pool = rng.choice(("max_pool2d", "max_pool2d", "avg_pool2d"))
    for layer in range(2):
        out = build.size(f"channels{layer + 1}", *rng.choice(((16, 4), (32, 4), (64, 6))))
        value = activation(build, rng, conv(build, value, out, 3, bias=True), name)
        value = build.node(pool, value, kernel_size=2, stride=2)
    if rng.random() < 0.5:
        value = build.node("adaptive_avg_pool2d", value, output_size=1)
    value = build.node("flatten", value, contiguous=True)
    hidden = build.size("hidden", *rng.choice(((120, 12), (128, 16), (256, 20))))
    value = activation(build, rng, build.node("linear", value, out_features=hidden), name)
    return build.node("linear", value, out_features=build.size("classes", rng.choice((10, 100, 1000)), 10))


def branches(build: Builder, rng: random.Random) -> str:
    """Convolutions of several sizes side by side, joined."""
    x = images(build, rng)
    squeezed = x
    if rng.random() < 0.5:
        squeezed = build.node(
            "relu", conv(build, x, build.size("hidden", *rng.choice(((16, 3), (24, 4)))), 1, bias=True)
        )
    joined = ""
    for place, kernel in enumerate(rng.sample((1, 3, 5), rng.choice((2, 2, 3)))):
        out = build.size(f"channels{place + 1}", *rng.choice(((16, 4), (32, 4), (64, 6))))
        branch = build.node("relu", conv(build, squeezed, out, kernel, bias=True))
        joined = build.node("cat", joined, branch, dim=1) if joined else branch
    return joined


def dense_block(build: Builder, rng: random.Random) -> str:
    """Each layer sees the joined outputs of all before it."""
    value = images(build, rng)
    growth = build.size("growth", *rng.choice(((12, 3), (16, 4), (32, 4))))
    for _ in range(2):
        new = conv(build, build.node("relu", build.node("batch_norm2d", value)), growth)
        value = build.node("cat", value, new, dim=1)
    return value


def mixer(build: Builder, rng: random.Random) -> str:
    """Layers that mix tokens, then the input."""
    x, _ = tokens(build, rng)
    hidden = build.size("hidden", *rng.choice(((256, 12), (512, 20))))
    value = build.node("transpose", build.node("layer_norm", x), dim0=1, dim1=2)
    seq = build.shape(x)[1]
    value = build.node("linear", build.node("gelu", build.node("linear", value, out_features=hidden)), out_features=seq)
    return build.node("add", x, build.node("transpose", value, dim0=1, dim1=2))


def convnext(build: Builder, rng: random.Random) -> str:
    """A wide convolution of each channel, a norm, two layers of each place, a weight per channel, and the input."""
    x = images(build, rng, rng.choice(((32, 4), (64, 8), (96, 6))))
    channels = build.shape(x)[1]
    value = conv(build, x, channels, 7, bias=True, groups=channels)
    value = build.node("group_norm", value, num_groups=1)
    value = build.node("gelu", conv(build, value, channels * 2, 1, bias=True))
    value = conv(build, value, channels, 1, bias=True)
    scale = (channels, as_dim(1), as_dim(1))
    return build.node("add", x, build.node("multiply_parameter", value, shape=scale, init="ones"))


def classifier(build: Builder, rng: random.Random) -> str:
    """An embedding, a mean over tokens, layers."""
    batch = build.size("batch", rng.choice((128, 256, 512)), 5)
    seq = build.size("seq", rng.choice((128, 256, 512)), 7)
    vocab = build.size("vocab", rng.choice((10000, 30000, 50000)), 50)
    width = build.size("features", *rng.choice(((128, 16), (256, 24), (512, 32))))
    tokens = build.input("x", (batch, seq), "randint", "int64", vocab)
    value = build.node("embedding", tokens, num_embeddings=vocab, embedding_dim=width)
    if rng.random() < 0.5:
        value = build.node("layer_norm", value)
        value = activation(build, rng, build.node("linear", value, out_features=build.size("hidden", 256, 20)))
    value = build.node(rng.choice(("mean", "max")), value, dims=(1,))
    return build.node("linear", value, out_features=build.size("classes", rng.choice((10, 100, 1000)), 10))


def recurrent_cell(build: Builder, rng: random.Random) -> str:
    """One step of a recurrent network, gated or not."""
    batch = build.size("batch", rng.choice((256, 512, 1024)), 5)
    width = build.size("in_features", *rng.choice(WIDTHS))
    hidden = build.size("hidden", *rng.choice(WIDTHS))
    x, h = build.input("x", (batch, width)), build.input("hidden", (batch, hidden))
    joined = lambda state: build.node("cat", x, state, dim=1)
    layer = lambda value: build.node("linear", value, out_features=hidden)
    if rng.random() < 0.4:
        return build.node("tanh", layer(joined(h)))
    first = joined(h)
    update, reset = build.node("sigmoid", layer(first)), build.node("sigmoid", layer(first))
    new = build.node("tanh", layer(joined(build.node("multiply", reset, h))))
    kept = build.node("multiply", build.node("subtract_from", update, value=1.0), h)
    return build.node("add", kept, build.node("multiply", update, new))


def double_conv(build: Builder, rng: random.Random) -> str:
    """Two convolutions with norms, then a pool or a finer image."""
    value, name = images(build, rng), rng.choice(("relu", "leaky_relu", "silu"))
    norm = rng.choice(("batch_norm2d", "instance_norm2d", "group_norm"))
    out = build.size("out_channels", *rng.choice(CHANNELS))
    for _ in range(2):
        value = conv(build, value, out, bias=norm != "batch_norm2d")
        value = build.node(norm, value, **({"num_groups": 4} if norm == "group_norm" else {}))
        value = activation(build, rng, value, name)
    if rng.random() < 0.5:
        return build.node("max_pool2d", value, kernel_size=2, stride=2)
    return build.node("upsample_nearest", value, scale_factor=2)


SMALL: dict[str, Callable[[Builder, random.Random], str]] = {
    function.__name__: function
    for function in (
        mlp,
        residual_block,
        plain_residual,
        bottleneck,
        inverted_residual,
        squeeze_excite,
        spatial_gate,
        feed_forward,
        gated_unit,
        attention_block,
        plain_attention,
        one_head,
        convnet,
        branches,
        dense_block,
        mixer,
        convnext,
        classifier,
        recurrent_cell,
        double_conv,
    )
}
