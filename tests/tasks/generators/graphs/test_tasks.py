"""Tasks of the generator `graphs`: sources against graphs."""

import math
import os
import subprocess
import sys

import pytest
import torch

from drkernel.tasks.generators import generate
from drkernel.tasks.generators.graphs.draw import FAMILIES
from drkernel.tasks.generators.graphs.graph import from_json
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.module import Reference
from drkernel.tasks.splits import SPLITS, split_of
from drkernel.types import DrKernelError
from tests.tasks.generators.graphs.compare import assert_same


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_source_computes_what_its_graph_says(dtype):
    for task in generate("train", 90, 11, generator="graphs", dtypes=[dtype]):
        assert_same(task)


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_many_sources_compute_what_their_graphs_say(split):
    for task in generate(split, 300, 12, generator="graphs"):
        assert_same(task)


def test_they_do_at_other_sizes_too():
    for task in generate("train", 60, 13, ["pointwise", "reductions", "linear_chain", "mlp"], generator="graphs"):
        name = next(iter(task.small))
        assert_same(task, {name: task.small[name] + 1})


@pytest.mark.slow
def test_no_composition_is_in_two_splits():
    found = {split: generate(split, 150, 0, generator="graphs") for split in SPLITS}
    for split, tasks in found.items():
        assert all(split_of(task.info["key"]) == task.split == split for task in tasks)
        assert all(task.id.startswith(f"generated/{'+'.join(task.info['composition'])}") for task in tasks)


@pytest.mark.slow
def test_every_family_is_in_train_and_nearly_every_operator():
    tasks = generate("train", 2500, 0, generator="graphs")
    assert {task.family for task in tasks} == set(FAMILIES)
    assert len({op for task in tasks for op in task.info["composition"]}) > 0.95 * len(OPS)


def test_a_longer_draw_begins_with_the_shorter_one_and_repeats_nothing():
    long = generate("train", 80, 3, generator="graphs")
    assert long[:30] == generate("train", 30, 3, generator="graphs")
    assert len({task.source for task in long}) == 80


def test_an_unknown_family_is_named():
    with pytest.raises(DrKernelError, match="unknown task family 'glu'; expected one of pointwise"):
        generate("train", 1, 0, ["glu"], generator="graphs")
    with pytest.raises(DrKernelError, match=r"tasks\.families: none of scans has float16 tasks; these have: pointwise"):
        generate("train", 1, 0, ["scans"], dtypes=["float16"], generator="graphs")


@pytest.mark.slow
def test_tasks_are_the_same_in_another_process():
    code = (
        "from drkernel.tasks.generators import generate; "
        "print([t.digest for t in generate('test', 60, 5, generator='graphs')])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([task.digest for task in generate("test", 60, 5, generator="graphs")])


@pytest.mark.slow
def test_sources_are_written_in_many_ways():
    text = "".join(task.source for task in generate("train", 600, 0, generator="graphs"))
    for part in (
        "super(Model, self)",
        "super().__init__",
        "nn.Sequential(",
        "class Block(",
        "Args:",
        "a, b = ",
        "# apply",
    ):
        assert part in text, part
    for part in (
        "def forward(self, x: torch.Tensor) -> torch.Tensor",
        "[[], {",
        "dim=-1",
        "bias_shape",
        "@",
        "stride=1",
    ):
        assert part in text, part


@pytest.mark.slow
def test_published_sizes_run_and_have_the_shapes_that_the_graph_says():
    for task in generate("train", 250, 14, generator="graphs"):
        graph = from_json(task.info["graph"])
        with torch.device("meta"):
            reference = Reference(task)
            found = reference.forward(reference.model(0).eval(), reference.inputs(0))
        assert list(found.shape) == [dim.full for dim in graph.shape(graph.outputs[0])], task.id
        assert {name: dim.full for name, dim in graph.sizes.items()} == {
            size: reference.constants[name] for size, name in task.info["names"].items()
        }


@pytest.mark.slow
def test_an_answer_that_repeats_the_constructor_owns_the_same_parameters():
    for task in generate("train", 300, 15, generator="graphs"):
        init = task.info["init"]
        if not init["lines"]:
            assert not task.info["parameters"]
            continue
        head = ["class ModelNew(nn.Module):", f"    def __init__({init['signature']}):", "        super().__init__()"]
        source = "\n".join(
            ["import torch", "import torch.nn as nn", *init["classes"], *head, *(f"        {x}" for x in init["lines"])]
        )
        names = {"torch": torch, "F": torch.nn.functional, "math": math}
        exec(source, names)
        reference = Reference(task, task.small)
        args, keywords = reference.init_args()
        ours, theirs = names["ModelNew"](*args, **keywords).state_dict(), reference.model(0).state_dict()
        shapes = lambda state: [(name, value.shape, value.dtype) for name, value in state.items()]
        assert shapes(ours) == shapes(theirs), task.id
        assert set(task.info["parameters"].values()) <= set(theirs), task.id
