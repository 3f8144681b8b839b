import json
import random

import pytest

from drkernel.tasks.generators import generate
from drkernel.tasks.generators.graphs import costs
from drkernel.tasks.generators.graphs.graph import Builder, from_json, to_json
from drkernel.tasks.generators.graphs.ops import OPS


def test_a_graph_survives_json():
    for task in generate("train", 60, 0, generator="graphs"):
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


@pytest.mark.parametrize(("length", "is_fit"), [(16, True), (3, True), (2, False)])
def test_a_graph_of_windows_longer_than_a_published_side_fits_no_device(length, is_fit):
    """Its small side may be longer. PyTorch refuses it, and an answer would divide by an empty side."""
    build = Builder()
    sizes = build.size("batch", 4096, 4), build.size("channels", 4096, 8), build.size("length", length, 8)
    x = build.input("x", sizes)
    pooled = build.node("max_pool1d", x, kernel_size=2, stride=2, padding=0, dilation=2)
    assert costs.fits(build.graph(build.node("softmax", pooled, dim=1))) == is_fit


def test_no_more_elements_are_chosen_than_a_published_side_has():
    build, rng = Builder(), random.Random(0)
    shape = build.size("rows", 4096, 4), build.size("length", 3, 8)
    drawn = [OPS["topk"].drawn(rng, [shape]) for _ in range(50)]
    assert {attributes["k"] for attributes in drawn if attributes} == {2, 3}
