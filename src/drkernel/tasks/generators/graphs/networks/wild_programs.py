"""Random tensor programs: statistics that go back to what they are of, masks, products of two
inputs, distances, halves that gate or turn each other, in any order and at any rank."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from drkernel.tasks.generators.graphs.dims import Dim, alike, as_dim
from drkernel.tasks.generators.graphs.graph import Builder
from drkernel.tasks.generators.graphs.networks import layers
from drkernel.tasks.generators.graphs.networks.wild import Network, Unfit
from drkernel.tasks.generators.graphs.nodes import Distribution
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.graphs.sizes import shape_of

_SQUASHING = ("sigmoid", "tanh", "softsign", "hardsigmoid", "relu6")
_ARITHMETIC = (
    "scale",
    "scale",
    "add_constant",
    "subtract_constant",
    "divide",
    "subtract_from",
    "clamp_min",
    "clamp_max",
)
_OF_ROWS = (
    "softmax",
    "softmax",
    "log_softmax",
    "softmin",
    "l2_norm",
    "l1_norm",
    "rms_scale",
    "standardize",
    "layer_norm",
)
_STATISTICS = ("mean", "mean", "max", "min", "norm", "std", "mean_abs", "logsumexp")
_LAST = ("sum", "mean", "max", "min", "norm", "logsumexp", "var", "std", "argmax", "argmin", "mean_abs", "mean_square")
_MOST_INPUTS = 3


class _Program(Network):
    def drawn(self, name: str) -> None:
        """An operator with attributes that suit the value."""
        if (attributes := OPS[name].drawn(self.rng, [self.shape])) is None:
            raise Unfit
        self.add(name, **attributes)

    def another(
        self, shape: Sequence[Dim | int], distribution: Distribution = "randn", dtype: str | None = None
    ) -> str:
        """A further input."""
        if len(self.build.inputs) >= _MOST_INPUTS:
            raise Unfit
        high = as_dim(shape[-1]) if distribution == "randint" else None
        shape = shape[:1] if distribution == "randint" else shape
        return self.build.input("xyz"[len(self.build.inputs)], shape, distribution, dtype, high)


def _activation(net: _Program) -> None:
    net.value = layers.activation(net.build, net.rng, net.value, net.rng.choice(("", "", *_SQUASHING)))


def _arithmetic(net: _Program) -> None:
    net.drawn(net.rng.choice(_ARITHMETIC))


def _rows(net: _Program) -> None:
    net.drawn(net.rng.choice(_OF_ROWS))


def _statistic(net: _Program) -> None:
    """A statistic is taken from the value, or scales it."""
    rng, kept = net.rng, net.value
    attributes = OPS["mean"].drawn(rng, [net.shape])
    if not attributes or len(attributes["dims"]) == len(net.shape):
        raise Unfit
    name = rng.choice(_STATISTICS)
    if name in ("max", "min") and len(attributes["dims"]) > 1:
        raise Unfit
    made = net.build.node(name, kept, dims=attributes["dims"], keepdim=True)
    if rng.random() < 0.3:
        made = net.build.node(rng.choice(_SQUASHING), made)
    net.value = net.build.node(rng.choice(("subtract", "subtract", "multiply", "add", "maximum")), kept, made)


def _broadcast(net: _Program) -> None:
    """Another input meets the value: of the same shape, or with ones."""
    shape, rng = net.shape, net.rng
    shapes: list[tuple[Dim | int, ...]] = [shape, shape, (*shape[:-1], 1), (shape[-1],)]
    if len(shape) > 2:
        shapes += [(shape[1], *[1] * (len(shape) - 2)), (shape[0], *[1] * (len(shape) - 1)), (1, *shape[1:])]
    other = net.another(rng.choice(shapes))
    net.value = net.build.node(rng.choice(("add", "multiply", "subtract", "maximum", "minimum")), net.value, other)


def _earlier(net: _Program) -> None:
    fitting = [value for value in net.earlier if value != net.value and alike(net.build.shape(value), net.shape)]
    if not fitting:
        raise Unfit
    name = net.rng.choice(("add", "multiply", "subtract", "maximum"))
    net.add(name, net.rng.choice(fitting))


def _masked(net: _Program) -> None:
    """What a mask leaves is weighted by softmax: a triangle, lengths, or a mask that is given."""
    shape, rng = net.shape, net.rng
    last = len(shape) - 1
    kinds = ["mask", "lengths"] + ["causal"] * (2 * (len(shape) > 2 and alike(shape[-1:], shape[-2:-1])))
    kind = rng.choice(kinds)
    if kind == "causal":
        net.add("causal_mask")
    elif kind == "lengths":
        net.add("length_mask", net.another(shape, "randint", "int64"))
    else:
        whole = len(shape) < 3 or rng.random() < 0.5
        net.add("mask_low", net.another(shape if whole else (shape[0], *[1] * (last - 1), shape[-1]), "mask", "bool"))
    net.add("softmax", dim=last)


def _scores(net: _Program) -> None:
    """The products of all rows with those of another input, or of themselves."""
    shape, build, rng = net.shape, net.build, net.rng
    if len(shape) < 2 or len(shape) > 4:
        raise Unfit
    itself = rng.random() < 0.25
    full = shape[-2:-1] if itself or rng.random() < 0.4 else rng.choice(((512, 6), (1024, 9)))
    rows = full[0] if len(full) == 1 else build.size("keys", *full)
    other = net.value if itself else net.another((*shape[:-2], rows, shape[-1]))
    if rng.random() < 0.2 and not itself:
        other, net.value = (build.node("l2_norm", value, dim=len(shape) - 1, eps=1e-12) for value in (other, net.value))
    net.value = build.node("matmul", net.value, other, transpose_y=True)
    name, number = rng.choice((("scale", 0.125), ("scale", 0.1), ("divide", 8.0), ("divide", 16.0)))
    net.add(name, value=number)
    if rng.random() < 0.4:
        _masked(net)


def _distances(net: _Program) -> None:
    """The squared distances of all rows from those of another input."""
    build, rng = net.build, net.rng
    if len(net.shape) != 2 or len(build.inputs) > 1:
        raise Unfit
    centers = build.size("centers", *rng.choice(((512, 5), (2048, 7), (4096, 9))))
    x, y = net.value, net.another((centers, net.shape[1]))
    squares = [build.node("square", value) for value in (x, y)]
    norms = [build.node("sum", squares[0], dims=(1,), keepdim=True), build.node("sum", squares[1], dims=(1,))]
    product = build.node("scale", build.node("matmul", x, y, transpose_y=True), value=2.0)
    net.value = build.node("subtract", build.node("add", *norms), product)
    net.add("clamp_min", value=0.0)
    if rng.random() < 0.6:
        net.drawn(rng.choice(("sqrt", "negative", "softmin")))


def _layer(net: _Program) -> None:
    if net.shape[-1].full > 4096:
        raise Unfit
    net.add("linear", out_features=net.width(), bias=net.rng.random() < 0.8)


def _halves(net: _Program) -> None:
    """One half gates the other, or both turn by an angle that is given."""
    build, rng, shape = net.build, net.rng, net.shape
    dims = [d for d, dim in enumerate(shape) if d and dim.full % 2 == dim.small % 2 == 0 and dim.small > 3]
    if not dims:
        raise Unfit
    dim = rng.choice(dims)
    first, second = (build.node("chunk", net.value, chunks=2, dim=dim, index=index) for index in (0, 1))
    if rng.random() < 0.6:
        gate = build.node(rng.choice(("sigmoid", "silu", "gelu", "relu", "tanh")), second)
        net.value = build.node(rng.choice(("multiply", "multiply", "add")), first, gate)
        return
    angle = net.another(build.shape(first)[-2:] if len(shape) > 2 else build.shape(first))
    cos, sin = (build.node(name, angle) for name in ("cos", "sin"))
    left, right = ((build.node("multiply", a, b)) for a, b in ((first, cos), (second, sin)))
    turned = build.node("subtract", left, right)
    others = [build.node("multiply", a, b) for a, b in ((first, sin), (second, cos))]
    net.value = build.node("cat", turned, build.node("add", *others), dim=dim)


def _scan(net: _Program) -> None:
    net.drawn(net.rng.choice(("cumsum", "cumsum", "reverse_cumsum", "flip", "cummax")))


def _end(net: _Program) -> str:
    """As it is, or as a statistic of some dimensions; no places where a mask decides them."""
    rng = net.rng
    if rng.random() < 0.45 and len(net.shape) > 1:
        masked = any(node.op.endswith(("mask", "mask_low")) for node in net.build.nodes)
        name = rng.choice([name for name in _LAST if not (masked and name.startswith("arg"))])
        attributes = OPS[name].drawn(rng, [net.shape])
        if attributes and len(attributes["dims"]) < len(net.shape):
            net.add(name, **attributes)
            if rng.random() < 0.3 and name not in ("argmax", "argmin"):
                net.grow(1, [_activation, _arithmetic])
    return net.value


_KINDS: tuple[Callable[[_Program], None], ...] = (
    *[_activation] * 2,
    *[_arithmetic] * 3,
    *[_rows] * 3,
    *[_statistic] * 3,
    *[_broadcast] * 3,
    *[_earlier] * 2,
    *[_masked] * 2,
    *[_scores] * 2,
    *[_halves] * 2,
    *(_distances, _layer, _scan),
)


def wild_programs(build: Builder, rng: random.Random) -> str:
    """Of tensors of any rank."""
    shape = shape_of(build, rng, rng.choice((2, 2, 3, 3, 4)), least=2**21, most=2**26)
    net = _Program(build, rng, build.input("x", shape))
    net.grow(rng.choice((1, 2, 2, 3, 3, 4, 5)), _KINDS)
    made = _end(net)
    assert all(any(x.name in node.inputs for node in build.nodes) for x in build.inputs), "an input that nobody reads"
    return made
