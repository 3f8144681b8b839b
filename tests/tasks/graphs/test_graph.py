import json

import pytest

from drkernel.tasks.generator import generate
from drkernel.tasks.graphs.graph import Builder, from_json, to_json


def test_a_graph_survives_json():
    for task in generate("train", 60, 0, version=2):
        text = json.dumps(task.info["graph"])
        assert json.dumps(to_json(from_json(json.loads(text)))) == text


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
