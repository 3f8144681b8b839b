"""Tasks of one operator, at 2 to 5 dimensions."""

from __future__ import annotations

import random

from drkernel.tasks.generators.graphs.dims import as_dim
from drkernel.tasks.generators.graphs.graph import Builder, Graph
from drkernel.tasks.generators.graphs.nodes import Distribution
from drkernel.tasks.generators.graphs.op import Op
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.graphs.sizes import random_input

_TRIES = 200
_SECOND: dict[str, Distribution] = {"rand": "rand", "sign": "sign", "mask": "mask", "probabilities": "probabilities"}
_TAME: dict[str, Distribution] = {"one": "near_one", "probabilities": "probabilities"}
_RANKS = {
    (True, True): (1, 2, 2, 3, 3, 4, 4, 5),
    (True, False): (1, 2, 3, 4),
    (False, True): (2, 3, 4, 5),
    (False, False): (2, 2, 3, 4, 5),
}
"""Ranks of inputs, by whether the operator is element-wise and whether it takes one."""
_OF_MATRICES = ("cross_entropy", "kl_div", "triplet_margin_loss", "kl_of_probabilities")


def names(*kinds: str) -> tuple[str, ...]:
    """The operators of some kinds that are tasks alone."""
    return tuple(name for name, op in OPS.items() if op.kind in kinds and "single" in op.level)


def single(rng: random.Random, name: str, dtype: str) -> tuple[Graph, str]:
    """A task of one operator, and its variant: what of it decides which kernel computes it."""
    op = OPS[name]
    for _ in range(_TRIES):
        build = Builder(dtype)
        value, others = _inputs(build, rng, op)
        attributes = op.drawn(rng, [build.shape(value)])
        if attributes is not None:
            graph = build.graph(build.node(name, value, *others, **attributes))
            return graph, variant(graph)
    raise AssertionError(f"no input for {name}")


def _inputs(build: Builder, rng: random.Random, op: Op) -> tuple[str, list[str]]:
    """Its inputs, of a random rank."""
    rank = 2 if op.name in _OF_MATRICES else rng.choice(_RANKS[op.kind == "pointwise", op.arity == 1])
    distribution: Distribution = _TAME.get(op.tame, "rand" if op.needs_positive else "randn")
    value = random_input(build, rng, rank, distribution, most=2**28 // op.arity)
    return value, [_second(build, rng, op, value, name) for name in ("y", "z")[: op.arity - 1]]


def _second(build: Builder, rng: random.Random, op: Op, value: str, name: str) -> str:
    shape = build.shape(value)
    if op.second == "labels":
        return build.input(name, shape[:1], "randint", "int64", shape[-1])
    if op.name == "hinge_loss" and rng.random() < 0.3:
        shape = (shape[0], *(as_dim(1),) * (len(shape) - 1))
    if op.kind == "binary" and op.second != "mask" and rng.random() < 0.45 and len(shape) > 1:
        kept = rng.sample(range(len(shape)), rng.randrange(1, len(shape)))
        shape = tuple(dim if place in kept else as_dim(1) for place, dim in enumerate(shape))
        shape = shape[min(kept) :] if rng.random() < 0.6 else shape
    return build.input(name, shape, _SECOND.get(op.second, "randn"), "bool" if op.second == "mask" else None)


def variant(graph: Graph) -> str:
    """Rank and attributes that change the kernel, e.g. `3d.1` for a sum over dimension 1."""
    node = graph.nodes[-1]
    parts = [f"{len(graph.shape(node.inputs[0]))}d"]
    dims = node.attributes.get("dims", node.attributes.get("dim"))
    if dims is not None:
        parts.append("_".join(map(str, dims)) if isinstance(dims, tuple) else str(dims))
    for name in (
        "kernel_size",
        "stride",
        "dilation",
        "num_groups",
        "output_size",
        "keepdim",
        "value",
        "margin",
        "delta",
    ):
        if (found := node.attributes.get(name)) not in (None, False, 1):
            parts.append(f"{name[0]}{found}".replace(" ", "").replace(",", "x").strip("()"))
    return ".".join(parts)
