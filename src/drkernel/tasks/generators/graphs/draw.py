"""Seeded drawing of graphs: families, and how often each is drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from drkernel.tasks.generators.graphs import cores, costs, networks
from drkernel.tasks.generators.graphs.chains import Chain
from drkernel.tasks.generators.graphs.graph import Builder, Graph, pruned
from drkernel.tasks.generators.graphs.networks import NETWORKS
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.graphs.singles import names, single, variant
from drkernel.tasks.generators.graphs.sizes import random_input, shape_of

Drawn = tuple[Graph, str]
"""A graph and the key of its composition, by which it is in one split."""


@dataclass(frozen=True)
class Family:
    """One kind of task."""

    draw: Callable[[random.Random, str], Drawn]
    """From a generator and a dtype."""
    share: int = 1
    """How often it is drawn in each round of all families."""
    narrow: bool = False
    """Whether there are tasks of 16 bits."""


def draw(family: str, rng: random.Random, dtype: str = "float32") -> Drawn:
    """A graph of the family that suits a GPU and the interpreter."""
    while True:
        try:
            graph, key = FAMILIES[family].draw(rng, dtype)
        except _Unfit:
            continue
        if costs.fits(graph):
            return graph, key


class _Unfit(Exception):
    """What was drawn does not fit together; another draw may."""


def _key(graph: Graph, addition: str = "") -> str:
    return "+".join(graph.composition) + (f".{addition}" if addition else "")


def _single(*kinds: str) -> Callable[[random.Random, str], Drawn]:
    """Tasks of one operator of these kinds, evenly over operators."""
    chosen = names(*kinds)

    def drawn(rng: random.Random, dtype: str) -> Drawn:
        graph, addition = single(rng, rng.choice(chosen), dtype)
        return graph, _key(graph, addition)

    return drawn


def _convolution(rng: random.Random, dtype: str) -> Drawn:
    build, like = Builder(dtype), rng.choice(cores.CONVOLUTIONS)
    graph = build.graph(_core(lambda: cores.convolution(build, rng, rng.choice((1, 2, 2, 3)), like)))
    return graph, _key(graph, f"{like}.{variant(graph)}")


def _product(rng: random.Random, dtype: str) -> Drawn:
    build, like = Builder(dtype), rng.choice(cores.PRODUCTS)
    graph = build.graph(cores.product(build, rng, like))
    return graph, _key(graph, like)


def _core(make: Callable[[], str]) -> str:
    """The value that `make` adds."""
    try:
        return make()
    except AssertionError as error:
        raise _Unfit(str(error)) from error


def _grown(build: Builder, rng: random.Random, value: str, steps: int) -> Drawn:
    chain = Chain(build, rng, value)
    if not chain.grow(steps):
        raise _Unfit("no further operator")
    graph = build.graph(chain.value)
    return graph, _key(graph)


def _conv_chain(rng: random.Random, dtype: str) -> Drawn:
    build, like, rank = Builder(dtype), rng.choice(cores.CONVOLUTIONS), rng.choice((1, 2, 2, 2, 3, 3))
    value = _core(lambda: cores.convolution(build, rng, rank, like))
    return _grown(build, rng, value, rng.choice((1, 2, 2, 3, 3, 4, 5)))


def _linear_chain(rng: random.Random, dtype: str) -> Drawn:
    build = Builder(dtype)
    value = cores.product(build, rng, rng.choice(("linear", "linear", "linear", "linear_tokens", "weight")))
    return _grown(build, rng, value, rng.choice((1, 2, 2, 3, 3, 4, 5)))


def _product_chain(rng: random.Random, dtype: str) -> Drawn:
    build, like = (
        Builder(dtype),
        rng.choice([name for name in cores.PRODUCTS if name not in ("linear", "linear_tokens", "weight")]),
    )
    value = cores.product(build, rng, like)
    if build.state(value).size == "large" and rng.random() < 0.6:
        name, number = rng.choice((("divide", 8.0), ("divide", 16.0), ("scale", 0.1), ("scale", 0.125)))
        value = build.node(name, value, value=number)
    return _grown(build, rng, value, rng.choice((1, 2, 2, 3, 3)))


def _plain_chain(rng: random.Random, dtype: str) -> Drawn:
    build = Builder(dtype)
    value = random_input(build, rng, rng.choice((2, 2, 3, 3, 4, 5)), most=2**27)
    return _grown(build, rng, value, rng.choice((2, 2, 3, 3, 4, 5)))


def _gate(rng: random.Random, dtype: str) -> Drawn:
    """One half of a value gates the other; then perhaps a few operators."""
    build = Builder(dtype)
    rank = rng.choice((2, 2, 3, 3, 4))
    shape = list(shape_of(build, rng, rank, most=2**27))
    dim = rng.choice((rank - 1, rank - 1, 1))
    shape[dim] = 2 * shape[dim]
    x = build.input("x", shape)
    first, second = (build.node("chunk", x, chunks=2, dim=dim, index=index) for index in (0, 1))
    name = rng.choice(("sigmoid", "silu", "gelu", "relu", "tanh", "mish", "softplus", "hardsigmoid", "gelu_tanh"))
    value = build.node("multiply", first, build.node(name, second))
    return _grown(build, rng, value, rng.choice((0, 0, 1, 1, 2)))


def _pair_chain(rng: random.Random, dtype: str) -> Drawn:
    """Two values are compared or combined along a dimension; then a few operators."""
    names_of = (
        "dot",
        "cosine_similarity",
        "squared_distance",
        "distance",
        "l1_distance",
        "add",
        "multiply",
        "subtract",
    )
    build = Builder(dtype)
    shape = shape_of(build, rng, rng.choice((2, 3, 3, 4)), most=2**26)
    x, y = build.input("x", shape), build.input("y", shape)
    name = rng.choice(names_of)
    attributes = OPS[name].drawn(rng, [shape])
    if attributes is None:
        raise _Unfit("no dimension to compare along")
    value = build.node(name, x, y, **attributes)
    if rng.random() < 0.25 and build.shape(value):
        value = build.node("subtract_from", value, value=1.0) if rng.random() < 0.5 else value
        graph = build.graph(build.node(rng.choice(("mean", "sum")), value, dims=tuple(range(len(build.shape(value))))))
        return graph, _key(graph)
    return _grown(build, rng, value, rng.choice((1, 2, 2, 3)))


def _masked_scan(rng: random.Random, dtype: str) -> Drawn:
    """A running sum of what a mask keeps, or a scan alone."""
    if rng.random() < 0.8:
        return _single("scan")(rng, dtype)
    build = Builder(dtype)
    shape = shape_of(build, rng, rng.choice((2, 2, 3, 4)))
    value = build.node("keep", build.input("x", shape), build.input("mask", shape, "mask", "bool"))
    attributes = OPS["cumsum"].draw(rng, [shape])  # type: ignore[misc]
    if attributes is None:
        raise _Unfit("no dimension to scan along")
    graph = build.graph(build.node("cumsum", value, **attributes))
    return graph, _key(graph, variant(graph))


def _lookup(rng: random.Random, dtype: str) -> Drawn:
    """Rows of a table by index, alone or with a few operators behind them."""
    build = Builder(dtype)
    rows = build.size("rows", rng.choice((16384, 32768, 65536)), rng.choice((6, 9)))
    cols = build.size("features", rng.choice((256, 512, 1024)), rng.choice((33, 70)))
    number = build.size("length", rng.choice((32768, 65536, 131072)), rng.choice((9, 12)))
    kind = rng.choice(("embedding", "index_select", "index_select", "gather"))
    if kind == "embedding":
        indices = build.input("x", (number,), "randint", "int64", rows)
        value = build.node("embedding", indices, num_embeddings=rows, embedding_dim=cols)
    else:
        table = build.input("x", (rows, cols))
        shape = (number,) if kind == "index_select" else (number, cols)
        value = build.node(kind, table, build.input("index", shape, "randint", "int64", rows), dim=0)
    return _grown(build, rng, value, rng.choice((0, 1, 2, 2)))


def _network(name: str) -> Callable[[random.Random, str], Drawn]:
    def drawn(rng: random.Random, dtype: str) -> Drawn:
        build = Builder(dtype)
        value = _core(lambda: NETWORKS[name](build, rng))
        steps = rng.choice((0, 0, 0, 1, 2))
        graph = pruned(_grown(build, rng, value, steps if build.dtype_of(value) == dtype else 0)[0])
        return graph, _key(graph)

    return drawn


FAMILIES: dict[str, Family] = {
    "pointwise": Family(_single("pointwise"), share=10, narrow=True),
    "broadcast": Family(_single("binary"), share=5, narrow=True),
    "reductions": Family(_single("reduction"), share=12),
    "softmaxes": Family(_single("softmax"), share=4, narrow=True),
    "scans": Family(_masked_scan, share=5),
    "norms": Family(_single("norm"), share=10),
    "pools": Family(_single("pool"), share=8),
    "losses": Family(_single("loss"), share=6),
    "views": Family(_single("view"), share=2),
    "convolutions": Family(_convolution, share=9, narrow=True),
    "products": Family(_product, share=8, narrow=True),
    "lookups": Family(_lookup, share=2),
    "conv_chain": Family(_conv_chain, share=20, narrow=True),
    "linear_chain": Family(_linear_chain, share=12, narrow=True),
    "product_chain": Family(_product_chain, share=5, narrow=True),
    "plain_chain": Family(_plain_chain, share=9),
    "gates": Family(_gate, share=4, narrow=True),
    "pair_chain": Family(_pair_chain, share=4),
    **{
        name: Family(_network(name), share=8 if name.startswith("wild") else 1, narrow=name in networks.NARROW)
        for name in NETWORKS
    },
}
