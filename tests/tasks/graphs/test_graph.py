import json
import random

import pytest

from drkernel.tasks.graphs.draw import example
from drkernel.tasks.graphs.graph import Builder, from_json, to_json
from drkernel.tasks.graphs.reference import task_of
from tests.tasks.graphs.compare import assert_same


@pytest.mark.parametrize("seed", range(12))
def test_the_source_computes_what_the_graph_says(seed):
    assert_same(task_of(example(random.Random(seed)), random.Random(seed)))


def test_a_graph_survives_json():
    graph = example(random.Random(0))
    assert from_json(json.loads(json.dumps(to_json(graph)))) == graph


def test_shapes_are_expressions_over_sizes():
    build = Builder()
    x = build.input("x", (build.size("rows", 4096, 9), build.size("cols", 1024, 33)))
    assert repr(build.shape(build.node("sum", x, dims=(0,), keepdim=True))) == "(1, cols)"


def test_shapes_that_do_not_fit_are_an_assertion():
    build = Builder()
    x = build.input("x", (build.size("rows", 4096, 9), build.size("cols", 1024, 33)))
    y = build.input("y", (build.size("others", 512, 33),))
    with pytest.raises(AssertionError, match="do not broadcast"):
        build.node("add", x, y)
