"""Random networks: layers, branches, gates and joins in random order, so that none can be known by heart."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from drkernel.tasks.generators.graphs.dims import Dim, alike
from drkernel.tasks.generators.graphs.graph import Builder
from drkernel.tasks.generators.graphs.networks import layers
from drkernel.tasks.generators.graphs.ops import OPS

_TRIES = 12
_MOVES = ("permute", "pad_all", "roll", "cut", "interpolate", "glu", "merge", "channel_shuffle", "repeat_interleave")


@dataclass
class Network:
    """A network that grows at its last value."""

    build: Builder
    rng: random.Random
    value: str
    earlier: list[str] = field(default_factory=list)

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.build.shape(self.value)

    def add(self, op: str, *others: str, **attributes: Any) -> None:
        self.value = self.build.node(op, self.value, *others, **attributes)

    def width(self, name: str = "width") -> Dim:
        """A new number of channels or features, or one that is there."""
        known = [dim for label, dim in self.build.sizes.items() if label.startswith(name)]
        if len(known) > 3 or (known and self.rng.random() < 0.5):
            return self.rng.choice(known)
        pairs = (
            ((16, 4), (32, 4), (64, 6), (96, 6), (128, 8)) if len(self.shape) > 3 else ((128, 12), (256, 16), (512, 20))
        )
        return self.build.size(f"{name}{len(known) + 1}", *self.rng.choice(pairs))

    def grow(self, steps: int, kinds: Sequence[Callable[[Any], None]]) -> str:
        for _ in range(steps):
            kept = self.value
            for _ in range(_TRIES):
                try:
                    self.rng.choice(kinds)(self)
                except (Unfit, AssertionError):
                    self.value = kept
                    continue
                break
            self.earlier.append(kept)
        return self.value


class Unfit(Exception):
    """What was drawn does not fit the value."""


def _activation(net: Network) -> None:
    net.value = layers.activation(net.build, net.rng, net.value)


def _arithmetic(net: Network) -> None:
    name = net.rng.choice(
        ("scale", "add_constant", "clamp_min", "divide", "soft_cap", "multiply_parameter", "add_parameter")
    )
    net.add(name, **(OPS[name].drawn(net.rng, [net.shape]) or {}))


def _convolution(net: Network) -> None:
    rng, build = net.rng, net.build
    kernel = rng.choice((1, 1, 3, 3, 3, 5, 7, (1, 3), (3, 1)))
    padding = tuple(k // 2 for k in kernel) if isinstance(kernel, tuple) else kernel // 2
    more: dict[str, Any] = {"stride": rng.choice((1, 1, 1, 2)), "bias": rng.random() < 0.5}
    channels = net.shape[1]
    out = channels if rng.random() < 0.4 else net.width()
    if rng.random() < 0.2:
        out, more["groups"] = channels, channels
    if net.shape[2].small < 5:
        more["stride"] = 1
    net.value = build.node("conv2d", net.value, out_channels=out, kernel_size=kernel, padding=padding, **more)
    if rng.random() < 0.6:
        net.add(rng.choice(("batch_norm2d", "batch_norm2d", "instance_norm2d")))
    if rng.random() < 0.6:
        _activation(net)


def _pool(net: Network) -> None:
    if net.shape[2].small < 6:
        raise Unfit
    kernel, stride, padding = net.rng.choice(((2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 1, 0)))
    net.add(net.rng.choice(("max_pool2d", "avg_pool2d")), kernel_size=kernel, stride=stride, padding=padding)


def _earlier(net: Network) -> None:
    """An earlier value of the same shape joins."""
    earlier = dict.fromkeys(value for value in net.earlier if value != net.value)
    fitting = [value for value in earlier if alike(net.build.shape(value), net.shape)]
    if not fitting:
        raise Unfit
    other, kind = net.rng.choice(fitting), net.rng.random()
    if kind < 0.75:
        net.add(net.rng.choice(("add", "add", "add", "multiply", "subtract", "maximum")), other)
    elif kind < 0.85 and len(fitting) > 1:
        net.add("cat3", *net.rng.sample(fitting, 2), dim=1)
    else:
        net.add("cat", other, dim=1)


def _branch(net: Network) -> None:
    """Two ways for one value."""
    kept, build, rng = net.value, net.build, net.rng
    parts = []
    out = net.width()
    for _ in range(2):
        if len(net.shape) == 4:
            value = layers.conv(build, kept, out, rng.choice((1, 3)), bias=rng.random() < 0.5)
        else:
            value = build.node("linear", kept, out_features=out)
        parts.append(layers.activation(build, rng, value) if rng.random() < 0.5 else value)
    join = rng.choice(("add", "multiply", "cat", "cat"))
    net.value = build.node(
        join, *parts, **({"dim": 1 if len(net.shape) == 4 else len(net.shape) - 1} if join == "cat" else {})
    )


def _gate(net: Network) -> None:
    """A value weighted by a function of itself."""
    build, rng, kept = net.build, net.rng, net.value
    squash = rng.choice(("sigmoid", "sigmoid", "tanh", "hardsigmoid"))
    if len(net.shape) != 4:
        gate = build.node("linear", kept, out_features=net.shape[-1])
    elif rng.random() < 0.4:
        gate = layers.conv(build, kept, net.shape[1], 1, bias=True)
    elif rng.random() < 0.5:
        gate = build.node("adaptive_avg_pool2d", kept, output_size=1)
        gate = build.node("conv2d", gate, out_channels=net.width(), kernel_size=1)
        gate = build.node("conv2d", build.node("relu", gate), out_channels=net.shape[1], kernel_size=1)
    else:
        gate = build.node("mean", kept, dims=(2, 3))
        gate = build.node("relu", build.node("linear", gate, out_features=net.width()))
        gate = build.node("linear", gate, out_features=net.shape[1])
        gate = build.node("unsqueeze", build.node("unsqueeze", gate, dim=2), dim=3)
    net.value = build.node("multiply", kept, build.node(squash, gate))


def _move(net: Network) -> None:
    name = net.rng.choice(_MOVES)
    attributes = OPS[name].drawn(net.rng, [net.shape])
    if attributes is None or (len(net.shape) == 4 and name in ("permute", "merge", "roll")):
        raise Unfit
    made = OPS[name].infer([net.shape], attributes)
    if len(made) != len(net.shape) or min(dim.small for dim in made) < 2:
        raise Unfit
    net.add(name, **attributes)


def _layer(net: Network) -> None:
    out = net.shape[-1] if net.rng.random() < 0.4 else net.width()
    if net.rng.random() < 0.15:
        net.add("linear_raw", out_features=out, bias=net.rng.choice(("", "zeros", "randn")))
    else:
        net.add("linear", out_features=out, bias=net.rng.random() < 0.8)
    if net.rng.random() < 0.6:
        _activation(net)


def _normed(net: Network) -> None:
    name = net.rng.choice(("layer_norm", "layer_norm", "softmax", "l2_norm"))
    attributes = OPS[name].drawn(net.rng, [net.shape])
    if attributes is None:
        raise Unfit
    net.add(name, **attributes)


def _attention(net: Network) -> None:
    width = net.shape[-1]
    parts = [net.build.node("linear", net.value, out_features=width, bias=False) for _ in range(3)]
    net.value = net.build.node("attention", *parts, is_causal=net.rng.random() < 0.3)
    if net.rng.random() < 0.5:
        net.add("linear", out_features=width)


def _end(net: Network) -> str:
    """As it is, or joined and turned into classes."""
    build, rng = net.build, net.rng
    if rng.random() < 0.5:
        return net.value
    if len(net.shape) == 4:
        if rng.random() < 0.5:
            net.add("adaptive_avg_pool2d", output_size=1)
            net.add("flatten", contiguous=False)
        else:
            net.add("mean", dims=(2, 3))
    elif len(net.shape) == 3 and rng.random() < 0.5:
        net.add(rng.choice(("mean", "max")), dims=(1,))
    if len(net.shape) > 1:
        net.add("linear", out_features=build.size("classes", rng.choice((2, 10, 40, 100, 1000)), 10))
    return net.value


def wild_images(build: Builder, rng: random.Random) -> str:
    """Of images."""
    side = rng.choice((28, 32, 56, 64, 112, 128))
    places = [build.size("height", side, 8), build.size("width", side, 8)]
    channels = build.size("channels", *rng.choice(((3, 3), (16, 4), (32, 4), (64, 6), (128, 8))))
    x = build.input("x", (build.size("batch", rng.choice((8, 16, 32, 64, 100)), 2), channels, *places))
    net = Network(build, rng, x)
    kinds = [_convolution] * 5 + [_activation, _arithmetic, _pool, _branch, _gate, _move] + [_earlier] * 3
    net.grow(rng.choice((2, 3, 4, 5, 6, 8, 10)), kinds)
    return _end(net)


def wild_rows(build: Builder, rng: random.Random) -> str:
    """Of vectors."""
    batch = build.size("batch", rng.choice((64, 128, 256, 1024, 2048)), rng.choice((5, 6)))
    x = build.input("x", (batch, build.size("features", *rng.choice(((256, 16), (512, 20), (1000, 24))))))
    net = Network(build, rng, x)
    kinds = [_layer] * 4 + [_activation, _arithmetic, _branch, _gate, _normed, _move] + [_earlier] * 2
    net.grow(rng.choice((2, 3, 4, 5, 6, 8, 12)), kinds)
    return _end(net)


def wild_tokens(build: Builder, rng: random.Random) -> str:
    """Of sequences."""
    batch, seq = build.size("batch", rng.choice((8, 16, 32)), 2), build.size("seq", rng.choice((64, 128, 197, 512)), 7)
    x = build.input("x", (batch, seq, build.size("features", *rng.choice(((128, 12), (256, 16), (512, 20))))))
    net = Network(build, rng, x)
    kinds = [_layer] * 3 + [_activation, _arithmetic, _branch, _gate, _normed, _normed, _attention] + [_earlier] * 3
    net.grow(rng.choice((2, 3, 4, 5, 6, 8)), kinds)
    return _end(net)


WILD: dict[str, Callable[[Builder, random.Random], str]] = {
    function.__name__: function for function in (wild_images, wild_rows, wild_tokens)
}
