"""Every entry of the table: its spellings and its Triton lines against the eager function."""

import random

import pytest
import torch

from drkernel.tasks.generators.graphs.draw import FAMILIES, draw
from drkernel.tasks.generators.graphs.graph import Graph
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.graphs.singles import single
from drkernel.tasks.generators.graphs.source.body import Body
from drkernel.tasks.generators.graphs.source.reference import task_of
from tests.tasks.generators.graphs.compare import assert_same

WITH_LINES = [
    name
    for name, op in OPS.items()
    if op.triton and op.kind in ("pointwise", "binary", "reduction", "loss") and op.tame != "probabilities"
]
FOLDS = ("", "sum", "max", "min", "prod")


class Language:
    """The functions of `triton.language` that lines may use, in PyTorch."""

    abs, exp, log, sqrt, erf, sigmoid = torch.abs, torch.exp, torch.log, torch.sqrt, torch.erf, torch.sigmoid
    sin, cos = torch.sin, torch.cos

    @staticmethod
    def where(condition, x, y):
        return torch.where(condition, x, y)

    @staticmethod
    def maximum(x, y):
        return torch.maximum(x, torch.as_tensor(y, dtype=x.dtype))

    @staticmethod
    def minimum(x, y):
        return torch.minimum(x, torch.as_tensor(y, dtype=x.dtype))


def run(lines, attributes, **values):
    """`v` after the lines."""
    texts = [line.format(**{name: repr(value) for name, value in attributes.items()}) for line in lines]
    exec("\n".join(texts), {"tl": Language}, values)
    return values["v"]


pytestmark = pytest.mark.xdist_group("ops")  # one worker draws the tasks


@pytest.fixture(scope="module")
def graphs() -> dict[str, list[Graph]]:
    """Graphs by an operator that is in them."""
    found: dict[str, list[Graph]] = {}
    for family in FAMILIES:
        for seed in range(30):
            graph, _ = draw(family, random.Random(f"{family}/{seed}"))
            for name in set(graph.composition):
                found.setdefault(name, []).append(graph)
    for name, op in OPS.items():
        if "single" in op.level and op.kind not in ("convolution", "product"):
            found.setdefault(name, []).append(single(random.Random(name), name, "float32")[0])
    return found


def test_the_sample_has_every_operator(graphs):
    assert len(OPS) - len(graphs) <= 3, sorted(OPS.keys() - graphs.keys())


@pytest.mark.parametrize("name", OPS)
def test_every_spelling_computes_the_same(graphs, name, monkeypatch):
    choose = Body._choose
    for spelling in OPS[name].spellings:
        for graph in graphs.get(name, [])[:12]:
            if not all(spelling.fits(node.attributes) for node in graph.nodes if node.op == name):
                continue
            forced = lambda body, node, spelling=spelling: spelling if node.op == name else choose(body, node)
            monkeypatch.setattr(Body, "_choose", forced)
            assert_same(task_of(graph, random.Random(spelling.text)))
            break


@pytest.mark.parametrize("name", WITH_LINES)
def test_lines_compute_what_pytorch_does(name):
    op, rng = OPS[name], random.Random(name)
    torch.manual_seed(0)
    x = torch.cat([torch.randn(4000) * 3, torch.randn(2000) * 0.05, torch.linspace(-12, 12, 1000)])
    x = x.abs() if op.needs_positive else x
    y = {"rand": torch.rand, "sign": lambda n: torch.randn(n).sign(), "mask": lambda n: torch.rand(n) < 0.5}
    y = y.get(op.second, torch.randn)(len(x))
    if op.kind == "pointwise":
        attributes = dict(single(rng, name, "float32")[0].nodes[0].attributes)
    else:
        attributes = {**op.defaults, "dims": (0,), "dim": 0, "delta": 0.5, "unbiased": True, "keepdim": False}
    if name == "prelu":
        y = y[:1]
    v = run(op.triton, attributes, v=x.double(), u=y.double() if op.second != "mask" else y)
    if op.kind in ("reduction", "loss"):
        if op.fold not in ("sum",):
            pytest.skip("the fold is not one of these lines")
        v = run(op.finish, attributes, v=v.sum(), n=len(x))
    own = {role: y[:1].double() if role == "weight" else y.double() for role in ("value", "weight")}
    inputs = [x.double(), y.double() if op.second != "mask" else y]
    expected = op.eager(inputs[: op.arity], own, attributes)
    torch.testing.assert_close(v, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in WITH_LINES if OPS[name].kind == "pointwise"])
def test_lines_are_no_number_only_where_pytorch_has_none(name):
    """What overflows before an operator is infinite: PyTorch's `log1p(exp(x))` is."""
    op, rng = OPS[name], random.Random(name)
    x = torch.tensor([0.0, 1e-30, 1.0, 90.0, 1e5, 1e20, float("inf")])
    x = x if op.needs_positive else torch.cat([x, -x])
    y = torch.full_like(x, 0.5) if op.second != "mask" else x > 0
    attributes = dict(single(rng, name, "float32")[0].nodes[0].attributes)
    v = run(op.triton, attributes, v=x, u=y)
    own = {"value": y[:1], "weight": y[:1]}
    expected = op.eager([x, y][: op.arity], own, attributes)
    assert (expected.isnan() | ~v.isnan()).all(), x[v.isnan() & ~expected.isnan()]
