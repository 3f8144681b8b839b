"""Sizes that differ in the published task differ where a submission is checked, so that no kernel mistakes one for
another."""

import dataclasses
from pathlib import Path

import pytest

from drkernel.judge.boundary import aten
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.devices.simulated.rescale import scale_of
from drkernel.judge.devices.simulated.roofline import Roofline
from drkernel.judge.trusted import prepare
from drkernel.judge.trusted.sizes import distinct_sizes, shrink
from drkernel.judge.trusted.sizes.distinct_sizes import fallen_together, number_together, sizes_of
from drkernel.tasks.generators import generate
from drkernel.tasks.module import Reference
from drkernel.types import Task
from tests.tasks.shrunk import UNSHRUNK as HANDWRITTEN
from tests.tasks.shrunk import shrinking, shrunk

JUDGED = {path.stem: Task(path.stem, path.read_text()) for path in Path("tests/judge/tasks").glob("*.py")}
BETWEEN_WEIGHTS = {"conv_transpose3d_grouped"}
"""Of the weight's dimensions one is the channels of a group, and one the side of the kernel."""
ONLY_AT_HIDDEN_SHAPES = {"conv3d_bias_swish_avgpool", "feature_pyramid", "instance_norm_volumes"}
"""At the small published shape all sizes cannot differ, if that is to be cheap."""


def checked(small):
    """The published sizes of a task that was shrunk, and those that a submission is checked at."""
    aten.install()
    reference, published = Reference(small, small.small), Reference(small)
    model = Roofline(GPUS["H200"], scale_of(small))
    prepared = prepare.prepare(reference, reference, b"secret", model, aten.record, published)
    return sizes_of(published), [sizes_of(each) for each in (reference, *prepared.hidden)]


@pytest.mark.slow
@shrinking
@pytest.mark.parametrize("name", sorted(HANDWRITTEN))
def test_different_sizes_differ_at_a_shape_that_is_checked(name):
    published, seen = checked(shrunk(name))
    assert fallen_together(published, *seen) == [] or name in BETWEEN_WEIGHTS
    assert number_together(published, seen[0]) == 0 or name in ONLY_AT_HIDDEN_SHAPES | BETWEEN_WEIGHTS


def test_hidden_shapes_part_what_a_task_says_is_equal_when_small():
    task = HANDWRITTEN["symmetric_by_dense"]
    published, (small, *hidden) = checked(dataclasses.replace(task, small={"N": 52, "C": 52}))
    assert fallen_together(published, small) == [{3328, 1664}]
    assert fallen_together(published, *hidden) == []


@pytest.mark.slow
def test_the_same_holds_of_generated_tasks_and_of_those_of_the_judge():
    tasks = [*generate("train", 40, 0), JUDGED["matmul"], JUDGED["layer_norm"], JUDGED["depthwise_conv"]]
    for task in tasks:
        published, seen = checked(shrink.fit(task))
        assert fallen_together(published, *seen) == [], task.id


@pytest.mark.slow
def test_sizes_that_are_equal_stay_equal_and_divisibility_stays():
    grouped = shrunk("conv_transpose3d_grouped").small
    assert grouped["in_channels"] % 4 == grouped["out_channels"] % 4 == 0  # four groups
    square = shrink.fit(Task("square", JUDGED["matmul"].source.replace("K = 2048", "K = 1024")))
    constants = Reference(square, square.small).constants
    assert constants["M"] == constants["K"] != constants["N"]


@pytest.mark.slow
def test_a_power_of_two_stays_one():
    for name in ("softmax", "layer_norm", "matmul", "batched_matmul"):
        small = Reference(shrink.fit(JUDGED[name]), shrink.fit(JUDGED[name]).small).constants
        assert all(value & (value - 1) == 0 for value in small.values()), name


def test_it_is_the_shapes_of_a_gpus_judge_too():
    cost = shrink.Cost(2**16, 2**16, 1e9)
    base = shrink.fit(HANDWRITTEN["symmetric_by_dense"], cost, cost, shrink.Cost(2**40, 2**40, 1e18))
    assert Reference(base, base.small).constants["N"] != Reference(base, base.small).constants["C"]


def test_what_tells_nothing_apart_is_tried_no_further():
    reference = Reference(JUDGED["softmax"], {"rows": 8, "cols": 16})
    tried = []

    def candidates():
        for number in range(9):
            tried.append(number)
            yield reference

    assert len(distinct_sizes.most_telling(candidates(), 2, Reference(JUDGED["softmax"]), reference)) == 2
    assert tried == [0, 1]
